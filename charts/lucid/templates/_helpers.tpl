{{/*
Objects have fixed names (lucid-operator, lucid-operator-webhook, …), independent of the release's name: API servers know
them, and a cluster has one Lucid.
*/}}

{{/* Labels of an object. Takes root and name (the program's). */}}
{{- define "lucid.labels" -}}
app.kubernetes.io/name: {{ .name }}
{{- if not .root.Values.plain }}
app.kubernetes.io/instance: {{ .root.Release.Name | toYaml }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: lucid
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}
{{- end }}

{{/* Image of a program. Takes root, name and the configured reference, which may be empty. */}}
{{- define "lucid.image" -}}
{{- with .root.Values.image -}}
{{- $.image | default (printf "%s/%s:%s" (trimSuffix "/" .registry) $.name (.tag | default $.root.Chart.AppVersion)) -}}
{{- end -}}
{{- end }}

{{/* Whether lucid-operator runs: it serves the mutating webhook. */}}
{{- define "lucid.operator" -}}
{{- if .Values.webhooks.mutating.enabled }}true{{ end -}}
{{- end }}

{{/* Whether lucid-operator serves the validating webhook. */}}
{{- define "lucid.operator.validates" -}}
{{- with .Values.webhooks.validating }}{{ if and .enabled (ne .by "validator") }}true{{ end }}{{ end -}}
{{- end }}

{{/* Whether lucid-validator runs. */}}
{{- define "lucid.validator" -}}
{{- with .Values.webhooks.validating }}{{ if and .enabled (ne .by "operator") }}true{{ end }}{{ end -}}
{{- end }}

{{/* Programs that serve webhooks, as a YAML list. */}}
{{- define "lucid.programs" -}}
{{- if include "lucid.operator" . }}
- lucid-operator
{{- end }}
{{- if include "lucid.validator" . }}
- lucid-validator
{{- end }}
{{- end }}

{{/* Whether profile=production is set. */}}
{{- define "lucid.production" -}}
{{- if eq (toString .Values.profile) "production" }}true{{ end -}}
{{- end }}

{{/* A switch that profile=production turns on where its value is null. Takes the root and the value. */}}
{{- define "lucid.switch" -}}
{{- $value := index . 1 -}}
{{- if kindIs "invalid" $value }}{{ include "lucid.production" (index . 0) }}{{ else if $value }}true{{ end -}}
{{- end }}

{{/* Whether auditor images must be notarized. */}}
{{- define "lucid.strict" -}}
{{- include "lucid.switch" (list . .Values.notary.strict) -}}
{{- end }}

{{/* Whether break-glass requires an RBAC permission. */}}
{{- define "lucid.accessReview" -}}
{{- include "lucid.switch" (list . .Values.policy.breakGlass.accessReview) -}}
{{- end }}

{{/* Whether applications must run as non-root. */}}
{{- define "lucid.requireNonRoot" -}}
{{- include "lucid.switch" (list . .Values.policy.requireNonRoot) -}}
{{- end }}

{{/* URL of the Verifier, or empty. */}}
{{- define "lucid.verifierUrl" -}}
{{- if .Values.notary.url -}}
{{- .Values.notary.url -}}
{{- else if .Values.verifier.enabled -}}
{{- ternary "https" "http" (not (empty .Values.verifier.tlsSecret)) }}://lucid-verifier.{{ .Release.Namespace }}.svc:8080
{{- end -}}
{{- end }}

{{/* Seconds of a duration such as 1h30m. */}}
{{- define "lucid.seconds" -}}
{{- $seconds := 0 -}}
{{- range regexFindAll "[0-9]+[hms]" . -1 -}}
{{- $unit := get (dict "h" 3600 "m" 60 "s" 1) (trimAll "0123456789" .) -}}
{{- $seconds = add $seconds (mul (atoi (trimAll "hms" .)) $unit) -}}
{{- end -}}
{{- $seconds -}}
{{- end }}

{{/* A quantity such as 500m, 1.5Gi or 1e9, as a number. */}}
{{- define "lucid.quantity" -}}
{{- $number := regexFind "^[0-9.]+([eE][-+]?[0-9]+)?" (toString .) -}}
{{- $factors := dict "n" 1e-9 "u" 1e-6 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 -}}
{{- mulf (float64 $number) (get $factors (trimPrefix $number (toString .)) | default 1) -}}
{{- end }}

{{/* Whether the cluster is OpenShift, which assigns users and groups to pods and refuses others. */}}
{{- define "lucid.openshift" -}}
{{- if or (eq .Values.certificates.source "openshift") (.Capabilities.APIVersions.Has "security.openshift.io/v1") }}true{{ end -}}
{{- end }}

{{/* Security context of Lucid's containers. */}}
{{- define "lucid.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Without a user: images set one, and OpenShift assigns users to each namespace. */}}
{{- define "lucid.podSecurityContext" -}}
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* Common fields of pods. Takes root, name and values (the program's). */}}
{{- define "lucid.scheduling" -}}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ toYaml . }}
  {{- end }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ toYaml . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Listening ports of lucid-operator or lucid-validator, as a YAML map. Takes the program's values. */}}
{{- define "lucid.ports" -}}
webhook: {{ .ports.webhook | default 8443 | int }}
admin: {{ .ports.admin | default 8080 | int }}
{{- end }}

{{/* Prefers different nodes and zones for replicas. Takes the same as lucid.scheduling. */}}
{{- define "lucid.spread" -}}
affinity:
{{- with .values.affinity }}
  {{- toYaml . | nindent 2 }}
{{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              app.kubernetes.io/name: {{ .name }}
          {{- /* Old replicas of an update do not keep new ones from their nodes. */}}
          matchLabelKeys: [pod-template-hash]
{{- end }}
topologySpreadConstraints:
{{- with .values.topologySpreadConstraints }}
  {{- toYaml . | nindent 2 }}
{{- else }}
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        app.kubernetes.io/name: {{ .name }}
    matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end }}
