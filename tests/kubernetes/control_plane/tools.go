//go:build tools

// The parts of Kubernetes that the tests run: the API server and the controllers that choose which pod goes.
package controlplane

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
)
