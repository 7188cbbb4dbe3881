{{/*
Rules of RBAC that both programs that serve webhooks need, each with its own names. With `plain` also those of settings
that are not in use: whoever applies manifests changes variables afterwards.
*/}}

{{/* In the cluster: what chains are planned with, and who may break the glass. */}}
{{- define "lucid.rbac.planning" -}}
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
# Reviews of break-glass users and of the service accounts of webhooks.
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}

{{/* In the namespace of the release: the catalogue and the Secrets of certificates. */}}
{{- define "lucid.rbac.namespace" -}}
{{- $plain := .root.Values.plain }}
{{- $certificates := .root.Values.certificates }}
{{- $selfSigned := eq $certificates.source "self-signed" }}
{{- $read := and (has $certificates.source (list "cert-manager" "openshift" "secret")) (not (get $certificates.volumes (trimPrefix "lucid-" .name))) }}
{{- $secret := get $certificates.secrets (trimPrefix "lucid-" .name) | default (printf "%s-tls" .name) -}}
# The cluster's catalogue, and the permissions of the webhooks.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [lucid-auditors, lucid-policy, lucid-webhooks]
  verbs: [list, watch]
# The settings of all replicas, which differ during a roll-out.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [lucid-generations]
  verbs: [list, watch{{ if eq .name "lucid-operator" }}, create, patch{{ end }}]
{{- if or $selfSigned $plain }}
# The certificate authority. It is created by server-side apply, so that "create" is bound to the name as well.
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ .name }}-ca]
  verbs: [get, list, watch, create, patch, update]
{{- end }}
{{- $issue := and $selfSigned (not $certificates.selfSigned.perReplica) }}
{{- if or $read $issue $plain }}
{{- if $plain }}
# The serving certificate. That of cert-manager, OpenShift or another issuer is only read: remove "create", "patch" and
# "update" then.
{{- else if $read }}
# The certificate of somebody else.
{{- else }}
# The certificate that all replicas share.
{{- end }}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ toYaml $secret }}]
  verbs: [{{ if $plain }}get, list, watch, create, patch, update{{ else if $read }}list, watch{{ else }}get, create, patch, update{{ end }}]
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

{{/*
Restricts the account of a program to its own registration: RBAC binds names, and not what stands under them. Takes root, name
and values: those of the program.
*/}}
{{- define "lucid.restriction" -}}
{{- $namespace := .root.Release.Namespace }}
{{- $services := list (printf "%s-webhook" .name) }}
{{- if eq .name "lucid-operator" }}
{{- $services = append $services .name }}
{{- end }}
{{- $hosts := list }}
{{- range .values.extraEnv }}
{{- if and (eq .name "LUCID_WEBHOOK_URL") .value }}
{{- $hosts = append $hosts (get (urlParse .value) "hostname") }}
{{- end }}
{{- end -}}
# The account of {{ .name }} may only register webhooks that are called at its own Service, for pods and workloads, outside
# of kube-system and its own namespace; and its Secrets cannot become tokens of other accounts.
{{- if .root.Values.plain }}
# With LUCID_WEBHOOK_URL, add `|| has(it.url) && url(it.url).getHostname() == 'HOST'` to the first validation.
{{- end }}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ .name }}
  labels:
    {{- include "lucid.labels" . | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [admissionregistration.k8s.io]
        apiVersions: ["*"]
        operations: [CREATE, UPDATE]
        resources: [mutatingwebhookconfigurations, validatingwebhookconfigurations]
      - apiGroups: [""]
        apiVersions: ["*"]
        operations: [CREATE, UPDATE]
        resources: [secrets]
  matchConditions:
    - name: account
      expression: request.userInfo.username == 'system:serviceaccount:{{ $namespace }}:{{ .name }}'
  variables:
    - name: webhooks
      expression: object.?webhooks.orValue([])
    - name: resources
      expression: >-
        request.resource.resource == 'mutatingwebhookconfigurations' ? ['pods'] :
        ['pods', 'pods/ephemeralcontainers', 'pods/resize', 'cronjobs', 'daemonsets', 'deployments', 'jobs',
        'podtemplates', 'replicasets', 'replicationcontrollers', 'statefulsets']
  validations:
    - expression: >-
        variables.webhooks.map(it, it.clientConfig).all(it,
        it.?service.namespace.orValue('') == '{{ $namespace }}' && it.?service.name.orValue('') in ['{{ join "', '" $services }}']
        {{- range $hosts }} || has(it.url) && url(it.url).getHostname() == '{{ . }}'{{ end }})
      message: {{ .name }} may only register its own Services, {{ join " and " $services }} in {{ $namespace }}
    - expression: >-
        variables.webhooks.all(it, it.?rules.orValue([]).all(rule,
        rule.apiGroups.all(it, it in ['', 'apps', 'batch']) && rule.resources.all(it, it in variables.resources)))
      message: {{ .name }} may only register for pods and workloads
    - expression: >-
        variables.webhooks.all(it, it.?namespaceSelector.matchExpressions.orValue([]).exists(it,
        it.key == 'kubernetes.io/metadata.name' && it.operator == 'NotIn' &&
        ['kube-system', 'kube-public', 'kube-node-lease', '{{ $namespace }}'].all(name, name in it.values)))
      message: {{ .name }} may not register for kube-system, kube-public, kube-node-lease and {{ $namespace }}
    - expression: >-
        request.resource.resource != 'secrets' || object.?type.orValue('Opaque') in ['Opaque', 'kubernetes.io/tls']
      message: {{ .name }} may only write Secrets of type Opaque and kubernetes.io/tls
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels:
    {{- include "lucid.labels" . | nindent 4 }}
spec:
  policyName: {{ .name }}
  validationActions: [Deny]
{{- end }}
