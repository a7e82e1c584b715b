"""Policies of the papers, of Kubernetes' HPA and of KEDA."""
