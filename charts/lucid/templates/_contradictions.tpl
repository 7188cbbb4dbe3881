{{/*
What contradicts itself: a sentence for each. values.schema.json has what a single value may be.
*/}}
{{- define "lucid.contradictions" -}}
{{- $values := .Values -}}
{{- $said := list -}}
{{- $operator := include "lucid.operator" . -}}
{{- $validator := include "lucid.validator" . -}}

{{- with $values.webhooks -}}
  {{- if not (or .mutating.enabled .validating.enabled) -}}
    {{- $said = append $said "webhooks.mutating.enabled and webhooks.validating.enabled are both false: there is nothing to install." -}}
  {{- else if and (not $operator) (ne .validating.by "validator") -}}
    {{- $said = append $said (printf "webhooks.mutating.enabled=false leaves no operator to validate, and webhooks.validating.by is %q: set it to \"validator\"." .validating.by) -}}
  {{- end -}}
  {{- if and .clientCa.names (not .clientCa.configMap) -}}
    {{- $said = append $said "webhooks.clientCa.names says whose certificates count, but without webhooks.clientCa.configMap none are asked for: name the ConfigMap with the authorities." -}}
  {{- end -}}
  {{- if not .validating.enabled -}}
    {{- if eq (toString $values.policy.admissionMode) "enforce" -}}
      {{- $said = append $said "policy.admissionMode=enforce has nobody to enforce it: webhooks.validating.enabled is false." -}}
    {{- end -}}
    {{- if $values.notary.strict -}}
      {{- $said = append $said "notary.strict=true has nobody to refuse images: webhooks.validating.enabled is false." -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- with $values.certificates -}}
  {{- $is := printf "certificates.source is %q" .source -}}
  {{- range $program := include "lucid.programs" $ | fromYamlArray -}}
    {{- $name := trimPrefix "lucid-" $program -}}
    {{- $volume := get $values.certificates.volumes $name -}}
    {{- if and (eq $values.certificates.source "files") (not $volume) -}}
      {{- $said = append $said (printf "certificates.source=files needs certificates.volumes.%s, a volume with tls.crt, tls.key and ca.crt." $name) -}}
    {{- end -}}
    {{- if and (eq $values.certificates.source "self-signed") $volume -}}
      {{- $said = append $said (printf "certificates.volumes.%s is mounted for nothing: %s, which keeps its certificates in a Secret and in memory." $name $is) -}}
    {{- end -}}
  {{- end -}}
  {{- if and .shareCertificate (ne .source "self-signed") -}}
    {{- $said = append $said (printf "certificates.shareCertificate=true is for certificates of Lucid's own, and %s: set it to \"self-signed\", or shareCertificate to false." $is) -}}
  {{- end -}}
  {{- if and (eq (toString .publishTrust) "false") (eq .source "self-signed") -}}
    {{- $said = append $said "certificates.publishTrust=false cannot be: with certificates.source=self-signed nobody but Lucid knows whom to trust." -}}
  {{- end -}}
  {{- if and (eq (toString .publishTrust) "true") (has .source (list "openshift" "olm")) -}}
    {{- $said = append $said (printf "certificates.publishTrust=true needs a ca.crt, and there is none: %s." $is) -}}
  {{- end -}}
  {{- $ca := include "lucid.seconds" (.selfSigned.caLifetime | default "8760h") | int -}}
  {{- $renew := include "lucid.seconds" (.selfSigned.caRenewBefore | default "720h") | int -}}
  {{- $leaf := include "lucid.seconds" (.selfSigned.certificateLifetime | default "168h") | int -}}
  {{- $settle := include "lucid.seconds" (.trustSettle | default "60s") | int -}}
  {{- if eq .source "self-signed" -}}
    {{- if le $ca (add $renew $leaf | int) -}}
      {{- $said = append $said "certificates.selfSigned.caLifetime must be longer than caRenewBefore and certificateLifetime together, or a new authority would be due for renewal at once." -}}
    {{- end -}}
    {{- if le (mul 2 $renew | int) (add (mul 2 $settle) (mul 3 $leaf) | int) -}}
      {{- $said = append $said "certificates.selfSigned.caRenewBefore must be longer than trustSettle and one and a half times certificateLifetime together, or an authority would expire before its successor has taken over." -}}
    {{- end -}}
    {{- if le $leaf (mul 3 (add $settle 60) | int) -}}
      {{- $said = append $said "certificates.selfSigned.certificateLifetime must be longer than three times trustSettle and a minute, or a certificate could expire before its successor is served." -}}
    {{- end -}}
  {{- else -}}
    {{- range $key, $value := .selfSigned -}}
      {{- if $value -}}
        {{- $said = append $said (printf "certificates.selfSigned.%s is for certificates of Lucid's own, and %s." $key $is) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- if and (.certManager.issuerRef | default dict).name (eq .source "cert-manager") (not .certManager.create) -}}
    {{- $said = append $said "certificates.certManager.issuerRef is for the chart's Certificates, and certificates.certManager.create is false." -}}
  {{- end -}}
  {{- if and (.certManager.issuerRef | default dict).name (ne .source "cert-manager") -}}
    {{- $said = append $said (printf "certificates.certManager.issuerRef names an issuer that nobody asks: %s." $is) -}}
  {{- end -}}
{{- end -}}

{{- with $values.notary -}}
  {{- $url := include "lucid.verifierUrl" $ -}}
  {{- if and .strict (not $url) (not .allowlist) -}}
    {{- $said = append $said "notary.strict=true refuses what no Verifier knows, and there is none: set notary.url, verifier.enabled or notary.allowlist." -}}
  {{- end -}}
  {{- if and .url $values.verifier.enabled -}}
    {{- $said = append $said "verifier.enabled=true installs a Verifier that nobody asks, for notary.url names another one: leave one of them out." -}}
  {{- end -}}
  {{- if not $url -}}
    {{- range $key, $of := dict "token" .token.secret "ca" .ca.configMap "clientCertificate" .clientCertificate.secret -}}
      {{- if $of -}}
        {{- $said = append $said (printf "notary.%s is for a Verifier, and there is none: set notary.url or verifier.enabled." $key) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- if and .token.secret (hasPrefix "http:" $url) (not .tokenOverHttp) -}}
    {{- $said = append $said (printf "notary.token would be sent over plain http to %s, where it can be read on its way: use https, or set notary.tokenOverHttp=true." (get (urlParse $url) "host")) -}}
  {{- end -}}
{{- end -}}
{{- if and $values.verifier.notarized (not $values.verifier.enabled) -}}
  {{- $said = append $said "verifier.notarized is for a Verifier of the chart's, and verifier.enabled is false: digests that need none belong into notary.allowlist." -}}
{{- end -}}
{{- if and $values.verifier.notarized $values.verifier.registryConfigMap -}}
  {{- $said = append $said "verifier.notarized is written into a ConfigMap that verifier.registryConfigMap replaces: leave one of them out." -}}
{{- end -}}
{{- if and $values.verifier.enabled $values.verifier.token.secret (not $values.notary.token.secret) -}}
  {{- $said = append $said "verifier.token.secret lets nobody in without a token, and notary.token.secret, which the webhooks show, is empty: name the same Secret there." -}}
{{- end -}}
{{- if and $values.verifier.enabled $values.verifier.tlsSecret (not $values.notary.ca.configMap) -}}
  {{- $said = append $said "verifier.tlsSecret is a certificate that the webhooks have to trust: name the ConfigMap with its authority in notary.ca.configMap." -}}
{{- end -}}

{{- with $values.injection -}}
  {{- if and .allowSkip .allowSkipServiceAccounts -}}
    {{- $said = append $said "injection.allowSkip=true honours skip-audit in every pod, and injection.allowSkipServiceAccounts only in some: leave one of them out." -}}
  {{- end -}}
{{- end -}}

{{- $names := dict -}}
{{- $ports := dict -}}
{{- range ($values.catalogue | default dict).chain -}}
  {{- $name := .name | trimPrefix "lucid-" | trimSuffix "-auditor" -}}
  {{- if hasKey $names $name -}}
    {{- $said = append $said (printf "catalogue.chain has two entries that mean the same: %s and %s." (get $names $name) .name) -}}
  {{- end -}}
  {{- $_ := set $names $name .name -}}
  {{- if .port -}}
    {{- $port := toString (int64 .port) -}}
    {{- if hasKey $ports $port -}}
      {{- $said = append $said (printf "catalogue.chain gives port %s to %s and %s: each has to have one of its own, or none." $port (get $ports $port) .name) -}}
    {{- end -}}
    {{- $_ := set $ports $port .name -}}
  {{- end -}}
{{- end -}}

{{- with $values.decisions.log -}}
  {{- if and .enabled (not $validator) -}}
    {{- $said = append $said "decisions.log.enabled=true needs a volume for each replica, which only lucid-validator has: set webhooks.validating.enabled=true and webhooks.validating.by=validator." -}}
  {{- end -}}
  {{- if and .key.secret (not .enabled) -}}
    {{- $said = append $said "decisions.log.key seals a log that is not kept: set decisions.log.enabled=true." -}}
  {{- end -}}
  {{- if and .witnesses (not .key.secret) -}}
    {{- $said = append $said "decisions.log.witnesses cosign checkpoints, and a log without decisions.log.key.secret has none." -}}
  {{- end -}}
{{- end -}}

{{- range $program := include "lucid.programs" . | fromYamlArray -}}
  {{- $name := trimPrefix "lucid-" $program -}}
  {{- $set := include "lucid.settings" (dict "root" $ "name" $program) | fromYaml -}}
  {{- range (get $values $name).extraEnv -}}
    {{- if or (hasKey $set .name) (has .name (list "LUCID_NAMESPACE" "POD_NAME")) -}}
      {{- $said = append $said (printf "%s.extraEnv sets %s, which the chart sets from other values." $name .name) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- if $said -}}
  {{- fail (printf "\n\n%s\n" (join "\n" $said)) -}}
{{- end -}}
{{- end }}
