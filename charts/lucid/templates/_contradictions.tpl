{{/*
Contradictions between values, with a message for each. values.schema.json checks single values.
*/}}
{{- define "lucid.contradictions" -}}
{{- $values := .Values -}}
{{- $said := list -}}
{{- $operator := include "lucid.operator" . -}}
{{- $validator := include "lucid.validator" . -}}
{{- $strict := include "lucid.strict" . -}}
{{- $strictBy := ternary "notary.strict=true" "profile=production" (eq (toString $values.notary.strict) "true") -}}

{{- if include "lucid.production" . -}}
  {{- if not (or $values.webhooks.clientCa.configMap $values.networkPolicy.apiServerCidrs) -}}
    {{- $said = append $said "profile=production allows only API servers to call the webhooks: name the ConfigMap with the authority of their client certificates in webhooks.clientCa.configMap. Where API servers present none, set networkPolicy.enabled=true and networkPolicy.apiServerCidrs (docs/authentication.md)." -}}
  {{- end -}}
  {{- if not $values.webhooks.validating.enabled -}}
    {{- $said = append $said "profile=production cannot deny pods: webhooks.validating.enabled is false." -}}
  {{- end -}}
{{- end -}}

{{- with $values.webhooks -}}
  {{- if not (or .mutating.enabled .validating.enabled) -}}
    {{- $said = append $said "webhooks.mutating.enabled and webhooks.validating.enabled are both false: there is nothing to install." -}}
  {{- else if and (not $operator) (ne .validating.by "validator") -}}
    {{- $said = append $said (printf "webhooks.mutating.enabled=false leaves no operator to validate pods, but webhooks.validating.by is %q: set it to \"validator\"." .validating.by) -}}
  {{- end -}}
  {{- range $name, $webhook := dict "mutating" .mutating "validating" .validating -}}
    {{- if and $webhook.failurePolicy (not $webhook.enabled) -}}
      {{- $said = append $said (printf "webhooks.%s.failurePolicy is for a disabled webhook: webhooks.%s.enabled is false." $name $name) -}}
    {{- end -}}
  {{- end -}}
  {{- if and (not .validating.enabled) (ne .validating.by "operator") -}}
    {{- $said = append $said (printf "webhooks.validating.by=%s selects a validator, but validation is disabled: webhooks.validating.enabled is false." .validating.by) -}}
  {{- end -}}
  {{- if and .clientCa.names (not .clientCa.configMap) -}}
    {{- $said = append $said "webhooks.clientCa.names limits client certificates, but without webhooks.clientCa.configMap none are requested: name the ConfigMap with the authorities." -}}
  {{- end -}}
  {{- if not .validating.enabled -}}
    {{- if eq (toString $values.policy.admissionMode) "enforce" -}}
      {{- $said = append $said "policy.admissionMode=enforce is not enforced: webhooks.validating.enabled is false." -}}
    {{- end -}}
    {{- if $values.notary.strict -}}
      {{- $said = append $said "notary.strict=true cannot deny images: webhooks.validating.enabled is false." -}}
    {{- end -}}
    {{- if $values.policy.requireNonRoot -}}
      {{- $said = append $said "policy.requireNonRoot=true cannot deny pods: webhooks.validating.enabled is false." -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- with $values.certificates -}}
  {{- $always := "would be raised at each renewal: set metrics.prometheusRule.enabled=false and bring rules of your own." -}}
  {{- $is := printf "certificates.source is %q" .source -}}
  {{- range $program := include "lucid.programs" $ | fromYamlArray -}}
    {{- $name := trimPrefix "lucid-" $program -}}
    {{- $volume := get $values.certificates.volumes $name -}}
    {{- if and (eq $values.certificates.source "files") (not $volume) -}}
      {{- $said = append $said (printf "certificates.source=files needs certificates.volumes.%s, a volume with tls.crt, tls.key and ca.crt." $name) -}}
    {{- end -}}
    {{- $secret := get $values.certificates.secrets $name -}}
    {{- if and $volume $secret (ne $values.certificates.source "self-signed") -}}
      {{- $said = append $said (printf "certificates.secrets.%s names a Secret that is not read, because certificates.volumes.%s is read in its place: leave one of them out." $name $name) -}}
    {{- end -}}
    {{- if and (eq $values.certificates.source "self-signed") $volume -}}
      {{- $said = append $said (printf "certificates.volumes.%s is mounted but not used: %s, which keeps its certificates in Secrets." $name $is) -}}
    {{- end -}}
  {{- end -}}
  {{- if or .selfSigned.perReplica (not (has .source (list "self-signed" "cert-manager" "openshift" "secret"))) -}}
    {{- range $name, $secret := .secrets -}}
      {{- if $secret -}}
        {{- $said = append $said (printf "certificates.secrets.%s names a Secret that is not read: %s." $name $is) -}}
      {{- end -}}
    {{- end -}}
  {{- else if and $operator $validator (ne .source "secret") (eq (.secrets.operator | default "lucid-operator-tls") (.secrets.validator | default "lucid-validator-tls")) -}}
    {{- $said = append $said "certificates.secrets.operator and certificates.secrets.validator are the same Secret, but each holds a certificate for its own names." -}}
  {{- end -}}
  {{- if and .injectCa (not (has .source (list "cert-manager" "secret" "files"))) -}}
    {{- $said = append $said (printf "certificates.injectCa is for cert-manager, secret and files, but %s." $is) -}}
  {{- end -}}
  {{- if and .injectCa (eq (toString .publishTrust) "true") -}}
    {{- $said = append $said "certificates.injectCa and certificates.publishTrust=true would both write the caBundle: leave one of them out." -}}
  {{- end -}}
  {{- if and (eq (toString .publishTrust) "false") (eq .source "self-signed") -}}
    {{- $said = append $said "certificates.publishTrust=false is not possible: with certificates.source=self-signed only Lucid can publish the trust." -}}
  {{- end -}}
  {{- if and (eq (toString .publishTrust) "true") (has .source (list "openshift" "olm")) -}}
    {{- $said = append $said (printf "certificates.publishTrust=true needs a ca.crt, which is missing: %s." $is) -}}
  {{- end -}}
  {{- $leaf := include "lucid.seconds" (.selfSigned.certificateLifetime | default "168h") | int -}}
  {{- $settle := include "lucid.seconds" (.trustSettle | default "60s") | int -}}
  {{- if eq .source "self-signed" -}}
    {{- if and $values.metrics.prometheusRule.enabled (lt $leaf 345600) -}}
      {{- $said = append $said (printf "certificates.selfSigned.certificateLifetime is below 96h, so that the alert LucidServingCertificateExpiresSoon, a day before the end, %s" $always) -}}
    {{- end -}}
    {{- if le $leaf (mul 3 (add $settle 60) | int) -}}
      {{- $said = append $said "certificates.selfSigned.certificateLifetime must be longer than three times trustSettle and a minute, or a certificate could expire before its successor is served." -}}
    {{- end -}}
  {{- else -}}
    {{- range $key, $value := .selfSigned -}}
      {{- if $value -}}
        {{- $said = append $said (printf "certificates.selfSigned.%s is for Lucid's own certificates, but %s." $key $is) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- if and (.certManager.issuerRef | default dict).name (eq .source "cert-manager") (not .certManager.create) -}}
    {{- $said = append $said "certificates.certManager.issuerRef is for the chart's Certificates, but certificates.certManager.create is false." -}}
  {{- end -}}
  {{- if and (.certManager.issuerRef | default dict).name (ne .source "cert-manager") -}}
    {{- $said = append $said (printf "certificates.certManager.issuerRef names an issuer that is not used: %s." $is) -}}
  {{- end -}}
  {{- with .certManager.issuerRef -}}
    {{- if and (or .kind .group) (not .name) -}}
      {{- $said = append $said "certificates.certManager.issuerRef has no name: without one the chart creates its own ClusterIssuer." -}}
    {{- end -}}
  {{- end -}}
  {{- if and (eq .source "cert-manager") .certManager.create $values.metrics.prometheusRule.enabled (le (include "lucid.seconds" .certManager.renewBefore | int) 604800) -}}
    {{- $said = append $said (printf "certificates.certManager.renewBefore is not above 168h, so that the alert LucidOperatorCertExpiringSoon, seven days before the end, %s" $always) -}}
  {{- end -}}
  {{- if and (eq .source "cert-manager") .certManager.create -}}
    {{- range $key, $least := dict "duration" "1h" "renewBefore" "5m" -}}
      {{- if lt (include "lucid.seconds" (get $values.certificates.certManager $key) | int) (include "lucid.seconds" $least | int) -}}
        {{- $said = append $said (printf "certificates.certManager.%s is below %s, which cert-manager rejects." $key $least) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- if and (eq .source "cert-manager") (le (include "lucid.seconds" .certManager.duration | int) (include "lucid.seconds" .certManager.renewBefore | int)) -}}
    {{- $said = append $said "certificates.certManager.duration must be longer than renewBefore, or a new certificate would be due for renewal at once." -}}
  {{- end -}}
{{- end -}}

{{- with $values.notary -}}
  {{- $url := include "lucid.verifierUrl" $ -}}
  {{- if and $strict (not $url) (not .allowlist) (not .signatures.configMap) -}}
    {{- $said = append $said (printf "%s denies images that no Verifier knows, but no Verifier is set: set notary.url, verifier.enabled, notary.allowlist or notary.signatures." $strictBy) -}}
  {{- end -}}
  {{- if and .signatures.pullSecret (not .signatures.configMap) -}}
    {{- $said = append $said "notary.signatures.pullSecret is for policies in a ConfigMap, but notary.signatures.configMap is not set." -}}
  {{- end -}}
  {{- if and .url $values.verifier.enabled -}}
    {{- $said = append $said "verifier.enabled=true installs a Verifier that is not used, because notary.url names another one: leave one of them out." -}}
  {{- end -}}
  {{- if not $url -}}
    {{- range $key, $of := dict "token" .token.secret "ca" .ca.configMap "clientCertificate" .clientCertificate.secret "logKey" .logKey -}}
      {{- if $of -}}
        {{- $said = append $said (printf "notary.%s is for a Verifier, but no Verifier is set: set notary.url or verifier.enabled." $key) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- if hasPrefix "http:" $url -}}
    {{- range $key, $of := dict "ca" .ca.configMap "clientCertificate" .clientCertificate.secret -}}
      {{- if $of -}}
        {{- $said = append $said (printf "notary.%s is for TLS, but the Verifier is called over plain http, at %s." $key (get (urlParse $url) "host")) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- if and .token.secret (hasPrefix "http:" $url) -}}
    {{- $said = append $said (printf "notary.token would be sent over plain http to %s, where it can be read in transit: use https." (get (urlParse $url) "host")) -}}
  {{- end -}}
{{- end -}}
{{- if and $values.verifier.notarized (not $values.verifier.enabled) -}}
  {{- $said = append $said "verifier.notarized is for the chart's Verifier, but verifier.enabled is false: list digests that need no Verifier in notary.allowlist." -}}
{{- end -}}
{{- if and $values.verifier.notarized $values.verifier.registryConfigMap -}}
  {{- $said = append $said "verifier.notarized is written into a ConfigMap that verifier.registryConfigMap replaces: leave one of them out." -}}
{{- end -}}
{{- if and $values.verifier.enabled $values.verifier.token.secret (not $values.notary.token.secret) -}}
  {{- $said = append $said "verifier.token.secret requires a token, but notary.token.secret, which the webhooks send, is empty: name the same Secret there." -}}
{{- end -}}
{{- if and $values.verifier.enabled $values.verifier.tlsSecret (not $values.notary.ca.configMap) -}}
  {{- $said = append $said "verifier.tlsSecret is a certificate that the webhooks must trust: name the ConfigMap with its authority in notary.ca.configMap." -}}
{{- end -}}

{{- if not $values.verifier.enabled -}}
  {{- range $key, $value := dict "registryConfigMap" $values.verifier.registryConfigMap "tlsSecret" $values.verifier.tlsSecret "token.secret" $values.verifier.token.secret -}}
    {{- if $value -}}
      {{- $said = append $said (printf "verifier.%s is for the chart's Verifier, but verifier.enabled is false." $key) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if not $values.cainjector.enabled -}}
  {{- range $key := list "secretNamespaces" "openshiftCa" "certManagerNamespaces" "besideCertManager" -}}
    {{- if get $values.cainjector $key -}}
      {{- $said = append $said (printf "cainjector.%s is for the CA injector, but cainjector.enabled is false." $key) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if not $values.networkPolicy.enabled -}}
  {{- range $key := list "apiServerCidrs" "metricsFrom" "auditFrom" "verifierPorts" "extraEgress" -}}
    {{- if get $values.networkPolicy $key -}}
      {{- $said = append $said (printf "networkPolicy.%s has no effect: networkPolicy.enabled is false." $key) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if and $values.networkPolicy.auditFrom (not $values.networkPolicy.apiServerCidrs) -}}
  {{- $said = append $said "networkPolicy.auditFrom allows some peers, but without networkPolicy.apiServerCidrs all are allowed." -}}
{{- end -}}
{{- if and $values.networkPolicy.verifierPorts (not $values.notary.url) -}}
  {{- $said = append $said "networkPolicy.verifierPorts are for an external Verifier, but notary.url is empty." -}}
{{- end -}}

{{- with $values.policy -}}
  {{- if and .tierValues (kindIs "string" .tierLabel) (not .tierLabel) -}}
    {{- $said = append $said "policy.tierValues are for a label that is not required: policy.tierLabel is empty." -}}
  {{- end -}}
  {{- if and .breakGlass.accessReview (kindIs "string" .breakGlass.pattern) (not .breakGlass.pattern) -}}
    {{- $said = append $said "policy.breakGlass.accessReview=true has no effect, because break-glass is disabled: policy.breakGlass.pattern is empty." -}}
  {{- end -}}
{{- end -}}

{{- with $values.injection -}}
  {{- if and .allowSkip .allowSkipServiceAccounts -}}
    {{- $said = append $said "injection.allowSkip=true honours skip-audit in every pod, and injection.allowSkipServiceAccounts only in some: leave one of them out." -}}
  {{- end -}}
{{- end -}}

{{- if and $strict $values.webhooks.validating.enabled (eq (toString $values.policy.admissionMode) "enforce") (not $values.policy.exemptions) -}}
  {{- range ($values.catalogue | default dict).chain -}}
    {{- if not (contains "@" .image) -}}
      {{- $said = append $said (printf "%s denies pods with auditor %s of catalogue.chain, whose image %s has no digest: name it as %s@sha256:…." $strictBy .name .image .image) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- $names := dict -}}
{{- range ($values.catalogue | default dict).chain -}}
  {{- $name := .name | trimPrefix "lucid-" | trimSuffix "-auditor" -}}
  {{- if hasKey $names $name -}}
    {{- $said = append $said (printf "catalogue.chain has two entries that mean the same: %s and %s." (get $names $name) .name) -}}
  {{- end -}}
  {{- $_ := set $names $name .name -}}
{{- end -}}

{{- with $values.decisions.log -}}
  {{- if and .enabled .storageClassName (ne .volume "persistentVolumeClaim") -}}
    {{- $said = append $said "decisions.log.storageClassName is for claims: set decisions.log.volume=persistentVolumeClaim." -}}
  {{- end -}}
  {{- $size := include "lucid.quantity" (include "lucid.logSize" $) | float64 -}}
  {{- if and .keepBytes (gt (float64 .keepBytes) $size) -}}
    {{- $said = append $said (printf "decisions.log.keepBytes=%d is larger than the volume: decisions.log.size is %s." (int64 .keepBytes) (include "lucid.logSize" $)) -}}
  {{- end -}}
  {{- if not .enabled -}}
    {{- range $key := list "size" "storageClassName" "keepBytes" "keepAge" "onFailure" "segmentBytes" -}}
      {{- if get $values.decisions.log $key -}}
        {{- $said = append $said (printf "decisions.log.%s is for a decision log, which is disabled: set decisions.log.enabled=true." $key) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- if and .key.secret (not .enabled) -}}
    {{- $said = append $said "decisions.log.key seals a decision log, which is disabled: set decisions.log.enabled=true." -}}
  {{- end -}}
  {{- if and .witnesses (not .enabled) -}}
    {{- $said = append $said "decisions.log.witnesses cosign a decision log, which is disabled: set decisions.log.enabled=true." -}}
  {{- end -}}
{{- end -}}

{{- $idle := dict
  "operator" (and (not $operator) "webhooks.mutating.enabled is false")
  "validator" (and (not $validator) "webhooks.validating.by is neither validator nor both")
  "verifier" (and (not $values.verifier.enabled) "verifier.enabled is false")
  "cainjector" (and (not $values.cainjector.enabled) "cainjector.enabled is false")
-}}
{{- range $name, $why := $idle -}}
  {{- $of := get $values $name -}}
  {{- range $key := list "podLabels" "podAnnotations" "topologySpreadConstraints" "extraEnv" "extraVolumes" "extraVolumeMounts" "extraContainers" "hostNetwork" -}}
    {{- if and $why (get $of $key) -}}
      {{- $said = append $said (printf "%s.%s is for lucid-%s, which does not run: %s." $name $key $name $why) -}}
    {{- end -}}
  {{- end -}}
  {{- range $key, $port := $of.ports -}}
    {{- if and $why $port -}}
      {{- $said = append $said (printf "%s.ports.%s is for lucid-%s, which does not run: %s." $name $key $name $why) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- range $name := list "operator" "validator" "verifier" "cainjector" -}}
  {{- $of := get $values $name -}}
  {{- if hasKey ($of.podLabels | default dict) "app.kubernetes.io/name" -}}
    {{- $said = append $said (printf "%s.podLabels sets app.kubernetes.io/name, by which pods are found." $name) -}}
  {{- end -}}
  {{- range $resource, $limit := ($of.resources | default dict).limits -}}
    {{- $request := get (($of.resources | default dict).requests | default dict) $resource -}}
    {{- if and $request (gt (include "lucid.quantity" $request | float64) (include "lucid.quantity" $limit | float64)) -}}
      {{- $said = append $said (printf "%s.resources.requests.%s=%v is more than %s.resources.limits.%s=%v." $name $resource $request $name $resource $limit) -}}
    {{- end -}}
  {{- end -}}
  {{- $listens := dict "LUCID_ADMIN_LISTEN" 8080 "LUCID_LISTEN" 8080 -}}
  {{- if hasKey $of "ports" -}}
    {{- $ports := include "lucid.ports" $of | fromYaml -}}
    {{- $listens = dict "LUCID_LISTEN" $ports.webhook "LUCID_ADMIN_LISTEN" $ports.admin -}}
    {{- if eq $ports.webhook $ports.admin -}}
      {{- $said = append $said (printf "%s.ports.webhook and %s.ports.admin are both %v." $name $name $ports.admin) -}}
    {{- end -}}
  {{- end -}}
  {{- $seen := dict -}}
  {{- range $of.extraEnv -}}
    {{- if or (and (eq .name "POD_NAME") (has $name (list "operator" "validator"))) (and (hasPrefix "LUCID_" .name) (not (has .name (list "LUCID_LISTEN" "LUCID_ADMIN_LISTEN" "LUCID_WEBHOOK_URL")))) -}}
      {{- $said = append $said (printf "%s.extraEnv sets %s, which the chart sets from other values." $name .name) -}}
    {{- end -}}
    {{- $port := get $listens .name -}}
    {{- if and $port .value (not (hasSuffix (print ":" $port) .value)) -}}
      {{- $said = append $said (printf "%s.extraEnv sets %s to %s, but Services, probes and NetworkPolicies use port %v." $name .name .value $port) -}}
    {{- end -}}
    {{- if hasKey $seen .name -}}
      {{- $said = append $said (printf "%s.extraEnv sets %s twice." $name .name) -}}
    {{- end -}}
    {{- $_ := set $seen .name true -}}
  {{- end -}}
{{- end -}}
{{- $taken := dict -}}
{{- range $program := include "lucid.programs" . | fromYamlArray -}}
  {{- $name := trimPrefix "lucid-" $program -}}
  {{- $of := get $values $name -}}
  {{- if $of.hostNetwork -}}
    {{- if $values.networkPolicy.enabled -}}
      {{- $said = append $said (printf "networkPolicy.enabled=true restricts connections to %s, but does not apply to pods in the network of their nodes: %s.hostNetwork is true." $program $name) -}}
    {{- end -}}
    {{- range $which, $port := include "lucid.ports" $of | fromYaml -}}
      {{- $path := printf "%s.ports.%s" $name $which -}}
      {{- $other := get $taken (print $port) -}}
      {{- if and $other (not (hasPrefix $name $other)) -}}
        {{- $said = append $said (printf "%s and %s are both %v, but only one of them can use it on a node." $other $path $port) -}}
      {{- end -}}
      {{- $_ := set $taken (print $port) $path -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if $said -}}
  {{- fail (printf "\n\n%s\n" (join "\n" $said)) -}}
{{- end -}}
{{- end }}
