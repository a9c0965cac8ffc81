{{/* The pod of a server: of the Deployment and of the StatefulSet. */}}
{{- define "runledger.pod" -}}
metadata:
  labels:
    {{- include "runledger.selector" . | nindent 4 }}
    app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
    app.kubernetes.io/part-of: runledger
    {{- with merge (dict) .Values.podLabels .Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # A change of these needs new pods. Certificates and the access file do not: the server reads them anew by itself.
    checksum/settings: {{ include "runledger.settings" . | sha256sum | quote }}
    {{- if and (include "runledger.postgres" .) .Values.store.postgres.dsn }}
    # Of a location with its password: a hash that takes long to make (scrypt), and of that so little that it tells
    # whether the location has changed, and not what it is.
    checksum/store: {{ derivePassword 1 "maximum" .Values.store.postgres.dsn (include "runledger.fullname" .) .Release.Namespace | sha256sum | trunc 8 | quote }}
    {{- end }}
    kubectl.kubernetes.io/default-container: runledger
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "runledger.serviceAccountName" . | quote }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ with .Values.drain }}{{ add .preStopSeconds .seconds .slackSeconds }}{{ end }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.extraInitContainers }}
  initContainers:
    {{- tpl (toYaml .) $ | nindent 4 }}
  {{- end }}
  containers:
    - name: runledger
      image: {{ include "runledger.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy | quote }}
      args:
        - serve
        - --config=/etc/runledger/settings/runledger.toml
        {{- range .Values.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      {{- with .Values.extraEnv }}
      env:
        {{- tpl (toYaml .) $ | nindent 8 }}
      {{- end }}
      {{- with .Values.extraEnvFrom }}
      envFrom:
        {{- tpl (toYaml .) $ | nindent 8 }}
      {{- end }}
      ports:
        - { name: grpc, containerPort: 50051, protocol: TCP }
        - { name: admin, containerPort: {{ toJson .Values.admin.port }}, protocol: TCP }
      startupProbe:
        {{- include "runledger.probe" (list .Values.probes.startup .Values.startupProbe "/livez") | nindent 8 }}
      livenessProbe:
        {{- include "runledger.probe" (list .Values.probes.liveness .Values.livenessProbe "/livez") | nindent 8 }}
      readinessProbe:
        {{- include "runledger.probe" (list .Values.probes.readiness .Values.readinessProbe "/readyz") | nindent 8 }}
      {{- if .Values.drain.preStopSeconds }}
      lifecycle:
        preStop:
          sleep: { seconds: {{ toJson .Values.drain.preStopSeconds }} }
      {{- end }}
      securityContext:
        {{- toYaml .Values.securityContext | nindent 8 }}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - { name: settings, mountPath: /etc/runledger/settings, readOnly: true }
        {{- if include "runledger.postgres" . }}
        - { name: store, mountPath: /etc/runledger/store, readOnly: true }
        {{- if .Values.store.postgres.tlsSecret }}
        - { name: postgres, mountPath: /etc/runledger/postgres, readOnly: true }
        {{- end }}
        {{- else }}
        - { name: ledger, mountPath: /var/lib/runledger }
        {{- end }}
        {{- if include "runledger.tls" . }}
        - { name: tls, mountPath: /etc/runledger/tls, readOnly: true }
        {{- end }}
        {{- if .Values.tls.clients.caSecret }}
        - { name: clients, mountPath: /etc/runledger/clients, readOnly: true }
        {{- end }}
        {{- if include "runledger.accessFile" . }}
        - { name: access, mountPath: /etc/runledger/access, readOnly: true }
        {{- end }}
        {{- if .Values.access.kubernetes }}
        - { name: cluster, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true }
        {{- end }}
        {{- with concat .Values.extraVolumeMounts .Values.volumeMounts }}
        {{- tpl (toYaml .) $ | nindent 8 }}
        {{- end }}
    {{- with .Values.extraContainers }}
    {{- tpl (toYaml .) $ | nindent 4 }}
    {{- end }}
  volumes:
    - name: settings
      configMap: { name: {{ include "runledger.quoted" (list . "") }} }
    {{- if include "runledger.postgres" . }}
    - name: store
      secret:
        secretName: {{ include "runledger.storeSecret" . | quote }}
        items: [{ key: {{ ternary .Values.store.postgres.key "dsn" (not (not .Values.store.postgres.existingSecret)) | quote }}, path: dsn }]
    {{- with .Values.store.postgres.tlsSecret }}
    - name: postgres
      # libpq's rule: a key that others can read is refused.
      secret: { secretName: {{ . | quote }}, defaultMode: 0440 }
    {{- end }}
    {{- else if .Values.store.sqlite.existingClaim }}
    - name: ledger
      persistentVolumeClaim: { claimName: {{ .Values.store.sqlite.existingClaim | quote }} }
    {{- end }}
    {{- if include "runledger.tls" . }}
    - name: tls
      secret:
        secretName: {{ include "runledger.tlsSecret" . | quote }}
        items: [{ key: tls.crt, path: tls.crt }, { key: tls.key, path: tls.key }]
    {{- end }}
    {{- with .Values.tls.clients.caSecret }}
    - name: clients
      secret: { secretName: {{ . | quote }} }
    {{- end }}
    {{- if include "runledger.accessFile" . }}
    - name: access
      secret:
        secretName: {{ default (printf "%s-access" (include "runledger.fullname" .)) .Values.access.existingSecret | quote }}
        items: [{ key: {{ ternary .Values.access.key "access.toml" (not (not .Values.access.existingSecret)) | quote }}, path: access.toml }]
    {{- end }}
    {{- if .Values.access.kubernetes }}
    # The pod's own token, to read the keys of the cluster's service accounts with, and nothing else.
    - name: cluster
      projected:
        sources:
          - serviceAccountToken: { path: token, expirationSeconds: 3607 }
          - configMap: { name: kube-root-ca.crt, items: [{ key: ca.crt, path: ca.crt }] }
          - downwardAPI: { items: [{ path: namespace, fieldRef: { fieldPath: metadata.namespace } }] }
    {{- end }}
    {{- with concat .Values.extraVolumes .Values.volumes }}
    {{- tpl (toYaml .) $ | nindent 4 }}
    {{- end }}
  topologySpreadConstraints:
    {{- if .Values.topologySpreadConstraints }}
    {{- toYaml .Values.topologySpreadConstraints | nindent 4 }}
    {{- else }}
    {{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - maxSkew: 1
      topologyKey: {{ $key | quote }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "runledger.selector" $ | nindent 10 }}
      {{- if include "runledger.postgres" $ }}
      # Each rollout's pods are spread among themselves, whatever of the former ones is still there.
      matchLabelKeys: [pod-template-hash]
      {{- end }}
    {{- end }}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with .Values.runtimeClassName }}
  runtimeClassName: {{ . | quote }}
  {{- end }}
  {{- with .Values.schedulerName }}
  schedulerName: {{ . | quote }}
  {{- end }}
  {{- with .Values.dnsPolicy }}
  dnsPolicy: {{ . | quote }}
  {{- end }}
  {{- with .Values.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.hostAliases }}
  hostAliases:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
