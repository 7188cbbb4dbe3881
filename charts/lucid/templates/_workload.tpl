{{/* The pods of a program that serves webhooks. Takes root, name, and values: those of the program. */}}
{{- define "lucid.podTemplate" -}}
{{- $log := and .root.Values.decisions.log.enabled (eq .name "lucid-validator") -}}
{{- $settings := include "lucid.settings" . | fromYaml -}}
{{- $files := include "lucid.files" . | fromYamlArray -}}
{{- $ports := include "lucid.ports" .values | fromYaml -}}
metadata:
  labels:
    app.kubernetes.io/name: {{ .name }}
    {{- if not (hasKey (.values.podLabels | default dict) "app") }}
    app: {{ .name }}
    {{- end }}
    {{- with .values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ .name }}
  {{- if .values.hostNetwork }}
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  {{- end }}
  {{- /* It goes on for the lame duck's time, and then ends what it has begun. */}}
  terminationGracePeriodSeconds: {{ add 35 (.root.Values.webhooks.lameDuckSeconds | default 10) }}
  securityContext:
    {{- include "lucid.podSecurityContext" . | nindent 4 }}
    {{- if and $log (not (include "lucid.openshift" .root)) }}
    # Volumes belong to root where nobody says otherwise.
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    {{- end }}
  {{- with include "lucid.scheduling" . }}
  {{- trim . | nindent 2 }}
  {{- end }}
  {{- include "lucid.spread" . | nindent 2 }}
  containers:
    - name: {{ .name }}
      image: {{ include "lucid.image" (dict "root" .root "name" .name "image" .values.image) | toYaml }}
      {{- with .root.Values.image.pullPolicy }}
      imagePullPolicy: {{ . }}
      {{- end }}
      {{- include "lucid.args" (list (list "run") $settings) | nindent 6 }}
      env:
        - name: LUCID_NAMESPACE
          valueFrom:
            fieldRef:
              fieldPath: metadata.namespace
        {{- /* Whose log or decision it is: pods in the network of a node are called as that. */}}
        {{- if or $log .values.hostNetwork }}
        - name: POD_NAME
          valueFrom:
            fieldRef:
              fieldPath: metadata.name
        {{- end }}
        {{- if .root.Values.plain }}
        # The steps of the roll-out.
        # - name: LUCID_ADMISSION_MODE
        #   value: audit           # steps 1 and 2; in 3 and 4: enforce
        {{- end }}
        {{- range $name, $value := $settings }}
        {{- if not (hasPrefix "--" $name) }}
        {{- if and $.root.Values.plain (eq $name "LUCID_STRICT_NOTARIZATION") }}
        # In production: "true", with the Verifier's URL.
        {{- end }}
        - name: {{ $name }}
          value: {{ $value | quote }}
        {{- end }}
        {{- end }}
        {{- with .values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - name: webhook
          containerPort: {{ $ports.webhook }}
        - name: admin
          containerPort: {{ $ports.admin }}
      livenessProbe:
        httpGet:
          path: /healthz
          port: admin
      readinessProbe:
        httpGet:
          path: /readyz
          port: admin
        {{- /* A replica that is not ready leaves the Service with the first probe that says so: until then the API server
               opens new connections to it. One that is merely busy has 2 s to answer. */}}
        periodSeconds: 2
        timeoutSeconds: 2
        failureThreshold: 1
      resources:
        {{- toYaml .values.resources | nindent 8 }}
      securityContext:
        {{- include "lucid.containerSecurityContext" . | nindent 8 }}
      {{- if or $files $log .values.extraVolumeMounts }}
      volumeMounts:
        {{- range $files }}
        - name: {{ .volume.name }}
          mountPath: {{ .path }}
          readOnly: true
        {{- end }}
        {{- if $log }}
        - name: decisions
          mountPath: /var/lib/lucid
        {{- end }}
        {{- with .values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
    {{- with .values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or $files .values.extraVolumes }}
  volumes:
    {{- range $files }}
    - {{- toYaml .volume | nindent 6 }}
    {{- end }}
    {{- with .values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
{{- end }}

{{/* How the pods of a Deployment are replaced. Takes the values of the program. */}}
{{- define "lucid.strategy" -}}
{{- if .hostNetwork }}
# A replica has the ports of its node: where there is no other node a new one waits for the old one to go.
strategy:
  rollingUpdate:
    maxSurge: 0
    maxUnavailable: 1
{{- end }}
{{- end }}

{{/* The ServiceAccount, the Services and the PodDisruptionBudget of a program. Takes root, name and values. */}}
{{- define "lucid.around" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | toYaml }}
  labels:
    {{- include "lucid.labels" . | nindent 4 }}
{{- $services := list (printf "%s-webhook" .name) }}
{{- /* Called if the certificate of another issuer is for no other name. */}}
{{- if eq .name "lucid-operator" }}
{{- $services = append $services .name }}
{{- end }}
{{- range $service := $services }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ $service }}
  namespace: {{ $.root.Release.Namespace | toYaml }}
  labels:
    {{- include "lucid.labels" $ | nindent 4 }}
  {{- with $.root.Values.certificates }}
  {{- if and (eq .source "openshift") (ne $service $.name) }}
  annotations:
    service.beta.openshift.io/serving-cert-secret-name: {{ get .secrets (trimPrefix "lucid-" $.name) | default (printf "%s-tls" $.name) | toYaml }}
  {{- end }}
  {{- end }}
spec:
  selector:
    app.kubernetes.io/name: {{ $.name }}
  ports:
    - name: webhook
      port: 443
      targetPort: webhook
{{- end }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | toYaml }}
  labels:
    {{- include "lucid.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ .values.maxUnavailable }}
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
{{- end }}

{{/* The roll-out as a comment of manifests. Takes the program's name. */}}
{{- define "lucid.canary" -}}
# The policy is brought in by four steps (docs/canary.md). Each is an overlay too:
# `kubectl apply --server-side -k canary/{{ if eq . "lucid-validator" }}validator/{{ end }}1`.
#
# 1. one replica, LUCID_ADMISSION_MODE=audit: what would be refused, from one record
# 2. several replicas, audit: the load, and a rolling update, while nothing is refused
# 3. one replica, enforce: the first refusals; back to audit is one command
# 4. all of them enforce
{{- end }}
