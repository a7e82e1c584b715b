{{/* A Role of the pods' ServiceAccount, and its binding: name, part, rules. */}}
{{- define "role" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}-{{ .part }}
rules: {{ .rules | toJson }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}-{{ .part }}
subjects:
  - kind: ServiceAccount
    name: {{ .name }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}-{{ .part }}
{{- end }}
