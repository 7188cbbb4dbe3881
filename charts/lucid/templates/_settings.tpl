{{/*
Sets a variable or flag in a dict, unless the value is null, empty or an empty list: then the program's default applies.
Takes the dict, the name and the value.
*/}}
{{- define "lucid.set" -}}
{{- $value := index . 2 -}}
{{- if kindIs "slice" $value -}}
  {{- if $value -}}{{- $_ := set (index . 0) (index . 1) (join "," $value) -}}{{- end -}}
{{- else -}}
  {{- include "lucid.setEvenEmpty" . -}}
  {{- if eq (get (index . 0) (index . 1)) "" -}}{{- $_ := unset (index . 0) (index . 1) -}}{{- end -}}
{{- end -}}
{{- end }}

{{/* Like lucid.set, but skips null only, for values that may be empty. */}}
{{- define "lucid.setEvenEmpty" -}}
{{- $value := index . 2 -}}
{{- if kindIs "slice" $value -}}
  {{- $_ := set (index . 0) (index . 1) (join "," $value) -}}
{{- else if or (kindIs "float64" $value) (kindIs "int64" $value) (kindIs "int" $value) -}}
  {{- $_ := set (index . 0) (index . 1) (toString (int64 $value)) -}}
{{- else if not (kindIs "invalid" $value) -}}
  {{- $_ := set (index . 0) (index . 1) (toString $value) -}}
{{- end -}}
{{- end }}

{{/*
Variables and flags of lucid-operator or lucid-validator, as a YAML map. Both get the same settings of injection and policy,
because the validator plans the chains again. Takes root, name and values (the program's).
*/}}
{{- define "lucid.settings" -}}
{{- $values := .root.Values -}}
{{- $env := dict -}}
{{- with $values.log -}}
  {{- include "lucid.set" (list $env "LUCID_LOG" .filter) -}}
  {{- include "lucid.set" (list $env "LUCID_LOG_FORMAT" .format) -}}
{{- end -}}

{{- $given := dict -}}
{{- range .values.extraEnv -}}{{- $_ := set $given .name true -}}{{- end -}}
{{- range $port, $variable := dict "webhook" "LUCID_LISTEN" "admin" "LUCID_ADMIN_LISTEN" -}}
  {{- if and (get $.values.ports $port) (not (hasKey $given $variable)) -}}
    {{- $_ := set $env $variable (printf "0.0.0.0:%d" (int (get $.values.ports $port))) -}}
  {{- end -}}
{{- end -}}

{{- with $values.webhooks -}}
  {{- include "lucid.set" (list $env "LUCID_NAMESPACE_SELECTOR" .namespaceSelector) -}}
  {{- include "lucid.set" (list $env "LUCID_OBJECT_SELECTOR" .objectSelector) -}}
  {{- include "lucid.set" (list $env "--webhook-timeout-seconds" .timeoutSeconds) -}}
  {{- include "lucid.set" (list $env "--lame-duck-seconds" .lameDuckSeconds) -}}
  {{- include "lucid.set" (list $env "LUCID_VALIDATION_FAILURE_POLICY" .validating.failurePolicy) -}}
  {{- if .clientCa.configMap -}}
    {{- $_ := set $env "LUCID_CLIENT_CA" (printf "/etc/lucid/client-ca/%s" .clientCa.key) -}}
    {{- include "lucid.set" (list $env "--client-names" .clientCa.names) -}}
  {{- end -}}
  {{- if and .validating.enabled (not .validating.workloads) -}}{{- $_ := set $env "--validate-workloads" "false" -}}{{- end -}}
  {{- if eq $.name "lucid-operator" -}}
    {{- include "lucid.set" (list $env "LUCID_FAILURE_POLICY" .mutating.failurePolicy) -}}
    {{- if not (include "lucid.operator.validates" $.root) -}}{{- $_ := set $env "LUCID_VALIDATE" "false" -}}{{- end -}}
    {{- if not $values.keeper.enabled -}}{{- $_ := set $env "LUCID_KEEPER" "false" -}}{{- end -}}
    {{- include "lucid.set" (list $env "LUCID_KEEPER_ACTIONS" $values.keeper.actions) -}}
  {{- end -}}
{{- end -}}

{{- with $values.certificates -}}
  {{- if ne .source "self-signed" -}}{{- $_ := set $env "LUCID_CERTIFICATES" .source -}}{{- end -}}
  {{- include "lucid.set" (list $env "--publish-trust" .publishTrust) -}}
  {{- include "lucid.set" (list $env "--tls-min-version" .minTlsVersion) -}}
  {{- include "lucid.set" (list $env "--inject-ca" .injectCa) -}}
  {{- if .selfSigned.perReplica -}}{{- $_ := set $env "--certificate-per-replica" "true" -}}{{- end -}}
  {{- include "lucid.set" (list $env "LUCID_CERTIFICATE_LIFETIME" .selfSigned.certificateLifetime) -}}
  {{- include "lucid.set" (list $env "--trust-settle" .trustSettle) -}}
  {{- include "lucid.set" (list $env "LUCID_TLS_SECRET" (get .secrets (trimPrefix "lucid-" $.name))) -}}
  {{- if get .volumes (trimPrefix "lucid-" $.name) -}}{{- $_ := set $env "LUCID_TLS_DIRECTORY" "/etc/lucid/tls" -}}{{- end -}}
{{- end -}}

{{- with $values.injection -}}
  {{- include "lucid.set" (list $env "LUCID_CHAIN" .chain) -}}
  {{- include "lucid.set" (list $env "LUCID_AUDIT_MODE" .auditMode) -}}
  {{- include "lucid.set" (list $env "LUCID_TARGET_PORT" .targetPort) -}}
  {{- include "lucid.set" (list $env "LUCID_DIRECTION" .direction) -}}
  {{- include "lucid.set" (list $env "LUCID_SIDECAR_MODE" .sidecarMode) -}}
  {{- include "lucid.set" (list $env "LUCID_INTERCEPT" (.intercept | default (include "lucid.production" $.root | empty | ternary "" "redirect"))) -}}
  {{- include "lucid.set" (list $env "--outbound-port" .outboundPort) -}}
  {{- include "lucid.set" (list $env "LUCID_IMAGE_PULL_SECRETS" .imagePullSecrets) -}}
  {{- include "lucid.set" (list $env "LUCID_ALLOW_SKIP" .allowSkipServiceAccounts) -}}
  {{- if .allowSkip -}}{{- $_ := set $env "LUCID_ALLOW_SKIP" "true" -}}{{- end -}}
  {{- range $name, $image := dict "lucid-init" .initImage "lucid-egress" "" -}}
    {{- $image = include "lucid.image" (dict "root" $.root "name" $name "image" $image) -}}
    {{- /* The programs know the images of their version. */ -}}
    {{- if ne $image (printf "ghcr.io/lucid/%s:%s" $name $.root.Chart.AppVersion) -}}
      {{- $_ := set $env (printf "%s_IMAGE" ($name | upper | replace "-" "_")) $image -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- with $values.notary -}}
  {{- $_ := set $env "LUCID_STRICT_NOTARIZATION" (include "lucid.strict" $.root | default "false") -}}
  {{- include "lucid.set" (list $env "LUCID_VERIFIER_URL" (include "lucid.verifierUrl" $.root)) -}}
  {{- if .token.secret -}}
    {{- $_ := set $env "--verifier-token-file" (printf "/etc/lucid/verifier-token/%s" .token.key) -}}
  {{- end -}}
  {{- if .ca.configMap -}}
    {{- $_ := set $env "--verifier-ca-file" (printf "/etc/lucid/verifier-ca/%s" .ca.key) -}}
  {{- end -}}
  {{- if .clientCertificate.secret -}}
    {{- $_ := set $env "--verifier-client-directory" "/etc/lucid/verifier-client" -}}
  {{- end -}}
  {{- include "lucid.set" (list $env "--verifier-log-key" .logKey) -}}
  {{- if .allowlist -}}
    {{- $_ := set $env "LUCID_VERIFIER_ALLOWLIST_FILE" "/etc/lucid/policy/allowlist" -}}
  {{- end -}}
  {{- if .signatures.configMap -}}
    {{- $_ := set $env "LUCID_SIGNATURES_DIRECTORY" "/etc/lucid/signatures" -}}
  {{- end -}}
{{- end -}}

{{- with $values.policy -}}
  {{- include "lucid.set" (list $env "LUCID_ADMISSION_MODE" .admissionMode) -}}
  {{- include "lucid.setEvenEmpty" (list $env "LUCID_TIER_LABEL" .tierLabel) -}}
  {{- include "lucid.setEvenEmpty" (list $env "--tier-values" .tierValues) -}}
  {{- include "lucid.setEvenEmpty" (list $env "LUCID_BREAK_GLASS_PATTERN" .breakGlass.pattern) -}}
  {{- if include "lucid.accessReview" $.root -}}{{- $_ := set $env "LUCID_BREAK_GLASS_ACCESS_REVIEW" "true" -}}{{- end -}}
  {{- if include "lucid.requireNonRoot" $.root -}}{{- $_ := set $env "LUCID_REQUIRE_NON_ROOT" "true" -}}{{- end -}}
{{- end -}}

{{- with $values.decisions -}}
  {{- if .token.secret -}}
    {{- $_ := set $env "--audit-token-file" (printf "/etc/lucid/audit-token/%s" .token.key) -}}
  {{- end -}}
  {{- if .alertToken.secret -}}
    {{- $_ := set $env "--audit-alert-token-file" (printf "/etc/lucid/audit-alert-token/%s" .alertToken.key) -}}
  {{- end -}}
  {{- if .log.enabled -}}
    {{- $_ := set $env "LUCID_DECISION_LOG" "/var/lib/lucid/decisions" -}}
    {{- if .log.key.secret -}}
      {{- $_ := set $env "LUCID_DECISION_LOG_KEY" (printf "/etc/lucid/decision-key/%s" .log.key.name) -}}
    {{- end -}}
    {{- /* The default of the programs. */ -}}
    {{- if ne .log.origin "lucid.computing" -}}
      {{- $_ := set $env "--decision-log-origin" (printf "%s/$(POD_NAME)" .log.origin) -}}
    {{- end -}}
    {{- include "lucid.set" (list $env "--decision-log-witnesses" .log.witnesses) -}}
    {{- $kept := mulf 0.75 (include "lucid.quantity" (include "lucid.logSize" $.root) | float64) | int64 -}}
    {{- include "lucid.set" (list $env "--decision-log-keep-bytes" (.log.keepBytes | default $kept)) -}}
    {{- include "lucid.set" (list $env "--decision-log-keep-age" .log.keepAge) -}}
    {{- /* Pods are not denied for a log that is lost with its pod. */ -}}
    {{- $onFailure := ternary "deny" "serve-and-alarm" (eq .log.volume "persistentVolumeClaim") -}}
    {{- include "lucid.set" (list $env "LUCID_DECISION_LOG_ON_FAILURE" (.log.onFailure | default $onFailure)) -}}
    {{- include "lucid.set" (list $env "--decision-log-segment-bytes" .log.segmentBytes) -}}
  {{- end -}}
{{- end -}}
{{- toYaml $env -}}
{{- end }}

{{/* Arguments of a container. Takes the leading arguments and the settings; settings that begin with `--` are flags. */}}
{{- define "lucid.args" -}}
{{- $args := index . 0 -}}
{{- range $name, $value := index . 1 -}}
  {{- if hasPrefix "--" $name -}}{{- $args = append $args (printf "%s=%s" $name $value) -}}{{- end -}}
{{- end -}}
args:{{ if eq (len $args) (len (index . 0)) }} [{{ join ", " $args }}]{{ else }}{{ toYaml $args | nindent 2 }}{{ end }}
{{- end }}

{{/* Variables of a container, as items of `env`. Takes the settings; those that begin with `--` are flags and left out. */}}
{{- define "lucid.env" -}}
{{- range $name, $value := . }}
{{- if not (hasPrefix "--" $name) }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Volumes of lucid-operator or lucid-validator with their mounts, as a list. Takes the same as lucid.settings. */}}
{{- define "lucid.files" -}}
{{- $values := .root.Values }}
{{- with get $values.certificates.volumes (trimPrefix "lucid-" .name) }}
- volume:
    name: tls
    {{- toYaml . | nindent 4 }}
  path: /etc/lucid/tls
{{- end }}
{{- with $values.webhooks.clientCa.configMap }}
- volume:
    name: client-ca
    configMap:
      name: {{ toYaml . }}
  path: /etc/lucid/client-ca
{{- end }}
{{- with $values.notary.token.secret }}
- volume:
    name: verifier-token
    secret:
      secretName: {{ toYaml . }}
  path: /etc/lucid/verifier-token
{{- end }}
{{- with $values.notary.ca.configMap }}
- volume:
    name: verifier-ca
    configMap:
      name: {{ toYaml . }}
  path: /etc/lucid/verifier-ca
{{- end }}
{{- with $values.notary.clientCertificate.secret }}
- volume:
    name: verifier-client
    secret:
      secretName: {{ toYaml . }}
  path: /etc/lucid/verifier-client
{{- end }}
{{- if $values.notary.allowlist }}
- volume:
    name: policy
    configMap:
      name: lucid-policy
  path: /etc/lucid/policy
{{- end }}
{{- with $values.notary.signatures }}
{{- if .configMap }}
- volume:
    name: signatures
    projected:
      sources:
        - configMap:
            name: {{ toYaml .configMap }}
        {{- with .pullSecret }}
        - secret:
            name: {{ toYaml . }}
            items:
              - key: .dockerconfigjson
                path: config.json
        {{- end }}
  path: /etc/lucid/signatures
{{- end }}
{{- end }}
{{- with $values.decisions.token.secret }}
- volume:
    name: audit-token
    secret:
      secretName: {{ toYaml . }}
  path: /etc/lucid/audit-token
{{- end }}
{{- with $values.decisions.alertToken.secret }}
- volume:
    name: audit-alert-token
    secret:
      secretName: {{ toYaml . }}
  path: /etc/lucid/audit-alert-token
{{- end }}
{{- if $values.decisions.log.enabled }}
{{- with $values.decisions.log.key.secret }}
- volume:
    name: decision-key
    secret:
      secretName: {{ toYaml . }}
  path: /etc/lucid/decision-key
{{- end }}
{{- end }}
{{- end }}
