{{/*
RBAC rules of lucid-operator and lucid-validator, each with its own names. `plain` adds the rules of unused settings, because
users of plain manifests change variables after applying them.
*/}}

{{/* Cluster-wide: inputs of plans, and access reviews. */}}
{{- define "lucid.rbac.planning" -}}
# Chains and catalogues of the namespaces.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [lucid-auditor-chain]
  verbs: [list, watch]
# Labels and annotations of the namespaces, such as Pod Security levels. Only metadata is read.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [list, watch]
# Auditors of the catalogue.
- apiGroups: [lucid.computing]
  resources: [auditors]
  verbs: [list, watch]
# Access reviews for break-glass users and for the service accounts of webhooks.
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}

{{/* In the release's namespace: configuration and the Secrets of certificates. */}}
{{- define "lucid.rbac.namespace" -}}
{{- $plain := .root.Values.plain }}
{{- $certificates := .root.Values.certificates }}
{{- $selfSigned := eq $certificates.source "self-signed" }}
{{- $read := and (has $certificates.source (list "cert-manager" "openshift" "secret")) (not (get $certificates.volumes (trimPrefix "lucid-" .name))) }}
{{- $secret := get $certificates.secrets (trimPrefix "lucid-" .name) | default (printf "%s-tls" .name) -}}
# The cluster's catalogue, and the permissions of the webhooks.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [lucid-auditors, lucid-auditors-canary, lucid-policy, lucid-webhooks]
  verbs: [list, watch]
# Settings of all replicas, which differ during a roll-out.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [lucid-generations]
  verbs: [list, watch{{ if eq .name "lucid-operator" }}, create, patch{{ end }}]
{{- if or $selfSigned $plain }}
# The certificate authority. Server-side apply creates it, so "create" is limited to the name, too.
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ .name }}-ca]
  verbs: [get, list, watch, create, patch, update]
{{- end }}
{{- $issue := and $selfSigned (not $certificates.selfSigned.perReplica) }}
{{- if or $read $issue $plain }}
{{- if $plain }}
# The serving certificate. If cert-manager, OpenShift or another issuer writes it, remove "create", "patch" and "update".
{{- else if $read }}
# The serving certificate, written by its issuer.
{{- else }}
# The serving certificate, shared by all replicas.
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
Restricts what the service account of a program may write, because RBAC restricts names but not content. Takes root, name and
values (the program's).
*/}}
{{- define "lucid.restriction" -}}
{{- $namespace := .root.Release.Namespace }}
{{- $services := list (printf "%s-webhook" .name) }}
{{- if eq .name "lucid-operator" }}
{{- $services = append $services .name }}
{{- end }}
{{- $actions := ternary .root.Values.keeper.actions list (eq .name "lucid-operator") }}
{{- $hosts := list }}
{{- range .values.extraEnv }}
{{- if and (eq .name "LUCID_WEBHOOK_URL") .value }}
{{- $hosts = append $hosts (get (urlParse .value) "hostname") }}
{{- end }}
{{- end -}}
# The account of {{ .name }} may only register webhooks of its own Service, for pods and workloads outside of kube-system and
# its own namespace. It cannot create Secrets that hold tokens of other accounts.
{{- if $actions }}
# In running pods it may only change images of auditors, and workloads it may only restart.
{{- end }}
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
      {{- if has "update" $actions }}
      - apiGroups: [""]
        apiVersions: ["*"]
        operations: [UPDATE]
        resources: [pods]
      {{- end }}
      {{- if has "evict" $actions }}
      - apiGroups: [""]
        apiVersions: ["*"]
        operations: [CREATE]
        resources: [pods/eviction]
      {{- end }}
      {{- if has "rollout" $actions }}
      - apiGroups: [apps]
        apiVersions: ["*"]
        operations: [UPDATE]
        resources: [deployments, statefulsets, daemonsets]
      {{- end }}
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
    {{- if $actions }}
    - expression: >-
        !(request.resource.resource in ['pods', 'deployments', 'statefulsets', 'daemonsets']) ||
        namespaceObject.metadata.?labels['lucid.computing/enabled'].orValue('') == 'true'
      message: {{ .name }} may only act in enabled namespaces
    {{- end }}
    {{- if has "update" $actions }}
    - expression: >-
        request.resource.resource != 'pods' || request.operation != 'UPDATE' ||
        object.metadata.?labels.orValue({}) == oldObject.metadata.?labels.orValue({}) &&
        object.metadata.?ownerReferences.orValue([]) == oldObject.metadata.?ownerReferences.orValue([]) &&
        object.spec.?activeDeadlineSeconds.orValue(0) == oldObject.spec.?activeDeadlineSeconds.orValue(0) &&
        (object.spec.containers + object.spec.?initContainers.orValue([])).all(it,
        (oldObject.spec.containers + oldObject.spec.?initContainers.orValue([])).exists(old, old.name == it.name &&
        (old.image == it.image || old.?env.orValue([]).exists(env, env.name == 'LUCID_AUDITOR_ID'))))
      message: {{ .name }} may only change images of auditors
    {{- end }}
    {{- if has "rollout" $actions }}
    - expression: >-
        !(request.resource.resource in ['deployments', 'statefulsets', 'daemonsets']) ||
        object.spec.?replicas.orValue(1) == oldObject.spec.?replicas.orValue(1) &&
        object.spec.?paused.orValue(false) == oldObject.spec.?paused.orValue(false) &&
        object.spec.template.spec == oldObject.spec.template.spec &&
        object.spec.template.metadata.?labels.orValue({}) == oldObject.spec.template.metadata.?labels.orValue({}) &&
        [[object, oldObject], [oldObject, object]].all(it,
        it[0].spec.template.metadata.?annotations.orValue({}).all(key, key == 'kubectl.kubernetes.io/restartedAt' ||
        it[1].spec.template.metadata.?annotations[?key].orValue('') == it[0].spec.template.metadata.annotations[key]))
      message: {{ .name }} may only restart workloads
    {{- end }}
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
