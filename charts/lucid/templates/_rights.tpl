{{/*
Rules of RBAC that both programs that serve webhooks need, each with its own names. With `plain` also those of settings
that are not in use: whoever applies manifests changes variables afterwards.
*/}}

{{/* In the cluster: what chains are planned with, and who may break the glass. */}}
{{- define "lucid.rights.planning" -}}
# The chains of the namespaces, whose catalogues say who else is an auditor there.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [lucid-auditor-chain]
  verbs: [list, watch]
# What their labels say, Pod Security levels above all. Only metadata is asked for.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [list, watch]
# The catalogue's objects.
- apiGroups: [lucid.computing]
  resources: [auditors]
  verbs: [list, watch]
{{- if or .root.Values.policy.breakGlass.accessReview .root.Values.plain }}
# Who may break the glass.{{ if .root.Values.plain }} Needed only with LUCID_BREAK_GLASS_ACCESS_REVIEW=true: remove it without.{{ end }}
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}
{{- end }}

{{/* In the namespace of the release: the catalogue and the Secrets of certificates. */}}
{{- define "lucid.rights.namespace" -}}
{{- $plain := .root.Values.plain }}
{{- $certificates := .root.Values.certificates }}
{{- $selfSigned := eq $certificates.source "self-signed" }}
{{- $read := and (has $certificates.source (list "cert-manager" "openshift" "secret")) (not (get $certificates.volumes (trimPrefix "lucid-" .name))) }}
{{- $secret := get $certificates.secrets (trimPrefix "lucid-" .name) | default (printf "%s-tls" .name) -}}
# The cluster's catalogue.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [lucid-auditors]
  verbs: [list, watch]
{{- if or $selfSigned $plain }}
# The certificate authority.
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ .name }}-ca]
  verbs: [get, list, watch, update]
{{- end }}
{{- if or $read $certificates.shareCertificate $plain }}
{{- if $plain }}
# The certificate of cert-manager, OpenShift or somebody else, which is only read. "update" is needed only with
# LUCID_SHARE_CERTIFICATE=true, when it is our own: remove the verb without.
{{- else if $read }}
# The certificate of somebody else.
{{- else }}
# The certificate that all replicas share.
{{- end }}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ toYaml $secret }}]
  verbs: [{{ if $plain }}get, list, watch, update{{ else if $read }}list, watch{{ else }}get, update{{ end }}]
{{- end }}
{{- if or $selfSigned $plain }}
# "create" by POST cannot be bound to a name.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
{{- end }}
{{- end }}

{{/* Binds a ClusterRole or a Role to the ServiceAccount of its name. Takes root, name, kind and, for a Role, namespace. */}}
{{- define "lucid.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ toYaml . }}
  {{- end }}
  labels:
    {{- include "lucid.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .name }}
    namespace: {{ .root.Release.Namespace | toYaml }}
{{- end }}
