{{/* Whether decision logs are on claims, so that programs are StatefulSets. */}}
{{- define "lucid.claims" -}}
{{- with .Values.decisions.log }}{{ if and .enabled (eq .volume "persistentVolumeClaim") }}true{{ end }}{{ end -}}
{{- end }}

{{/* Size of the volume of a decision log. */}}
{{- define "lucid.logSize" -}}
{{- .Values.decisions.log.size | default (ternary "10Gi" "1Gi" (eq .Values.decisions.log.volume "persistentVolumeClaim")) -}}
{{- end }}

{{/* Deployment or StatefulSet of lucid-operator or lucid-validator. Takes root, name and values (the program's). */}}
{{- define "lucid.workload" -}}
{{- $plain := .root.Values.plain -}}
{{- $claims := include "lucid.claims" .root -}}
{{- if $plain }}
{{ include "lucid.canary" .name }}
{{- end }}
apiVersion: apps/v1
kind: {{ ternary "StatefulSet" "Deployment" (not (empty $claims)) }}
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | toYaml }}
  labels:
    {{- include "lucid.labels" . | nindent 4 }}
spec:
  replicas: {{ .values.replicas }}{{ if $plain }}                      # steps 1 and 3: 1; 2 and 4: several{{ end }}
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
  {{- if $claims }}
  serviceName: {{ .name }}
  # Replicas are independent and start in parallel.
  podManagementPolicy: Parallel
  {{- /* A log is evidence: its claim is kept when replicas or the release are deleted. */}}
  persistentVolumeClaimRetentionPolicy:
    whenDeleted: Retain
    whenScaled: Retain
  volumeClaimTemplates:
    - metadata:
        name: decisions
        labels:
          app.kubernetes.io/name: {{ .name }}
      spec:
        accessModes: [ReadWriteOnce]
        {{- with .root.Values.decisions.log.storageClassName }}
        storageClassName: {{ toYaml . }}
        {{- end }}
        resources:
          requests:
            storage: {{ include "lucid.logSize" .root | toYaml }}
  {{- else }}
  {{- with include "lucid.strategy" .values }}
  {{- trim . | nindent 2 }}
  {{- end }}
  {{- end }}
  template:
    {{- include "lucid.podTemplate" . | nindent 4 }}
{{- end }}

{{/* Pods of lucid-operator or lucid-validator. Takes root, name and values (the program's). */}}
{{- define "lucid.podTemplate" -}}
{{- $log := .root.Values.decisions.log.enabled -}}
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
  {{- /* Time for the lame-duck period and for requests in flight. */}}
  terminationGracePeriodSeconds: {{ add 35 (.root.Values.webhooks.lameDuckSeconds | default 10) }}
  securityContext:
    {{- include "lucid.podSecurityContext" . | nindent 4 }}
    {{- if and (include "lucid.claims" .root) (not (include "lucid.openshift" .root)) }}
    # Volumes of claims belong to root by default.
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
        {{- /* Names the log and decisions: with hostNetwork, the host name of a pod is that of its node. */}}
        - name: POD_NAME
          valueFrom:
            fieldRef:
              fieldPath: metadata.name
        {{- if .root.Values.plain }}
        # Steps of the roll-out:
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
        {{- /* A replica leaves the Service at the first failed probe: until then the API server opens new connections to
               it. A busy replica has 2 s to respond. */}}
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
  {{- $emptyDir := and $log (not (include "lucid.claims" .root)) }}
  {{- if or $files $emptyDir .values.extraVolumes }}
  volumes:
    {{- range $files }}
    - {{- toYaml .volume | nindent 6 }}
    {{- end }}
    {{- if $emptyDir }}
    # Decision log, which is lost with the pod.
    - name: decisions
      emptyDir:
        sizeLimit: {{ include "lucid.logSize" .root | toYaml }}
    {{- end }}
    {{- with .values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
{{- end }}

{{/* Update strategy of a Deployment. Takes the program's values. */}}
{{- define "lucid.strategy" -}}
{{- if .hostNetwork }}
# Replicas use ports of their nodes: without a free node, a new replica starts after an old one has stopped.
strategy:
  rollingUpdate:
    maxSurge: 0
    maxUnavailable: 1
{{- end }}
{{- end }}

{{/* ServiceAccount, Services and PodDisruptionBudget of a program. Takes root, name and values. */}}
{{- define "lucid.around" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | toYaml }}
  labels:
    {{- include "lucid.labels" . | nindent 4 }}
{{- $services := list (printf "%s-webhook" .name) }}
{{- /* Called if an external certificate is valid for this name only. */}}
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
{{- /* The operator's StatefulSet uses the Service above. */}}
{{- if and (include "lucid.claims" .root) (ne .name "lucid-operator") }}
---
# Gives each pod of the StatefulSet a DNS name.
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | toYaml }}
  labels:
    {{- include "lucid.labels" . | nindent 4 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    app.kubernetes.io/name: {{ .name }}
  ports:
    - name: webhook
      port: 443
      targetPort: webhook
{{- end }}
{{- end }}

{{/* Describes the roll-out in a comment. Takes the program's name. */}}
{{- define "lucid.canary" -}}
# Roll the policy out in four steps (docs/canary.md). Each is also an overlay:
# `kubectl apply --server-side -k canary/{{ if eq . "lucid-validator" }}validator/{{ end }}1`.
#
# 1. one replica, LUCID_ADMISSION_MODE=audit: one record shows what would be refused
# 2. several replicas, audit: tests load and a rolling update while nothing is refused
# 3. one replica, enforce: the first refusals; one command returns to audit
# 4. all replicas enforce
{{- end }}
