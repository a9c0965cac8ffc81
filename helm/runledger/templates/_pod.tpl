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
    checksum/settings: {{ include "runledger.settings" . | sha256sum }}
    {{- if and (include "runledger.postgres" .) .Values.store.postgres.dsn }}
    checksum/store: {{ .Values.store.postgres.dsn | sha256sum }}
    {{- end }}
    kubectl.kubernetes.io/default-container: runledger
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "runledger.serviceAccountName" . }}
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
      imagePullPolicy: {{ .Values.image.pullPolicy }}
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
        - { name: admin, containerPort: {{ .Values.admin.port }}, protocol: TCP }
      startupProbe:
        httpGet: { path: /livez, port: admin }
        {{- toYaml .Values.probes.startup | nindent 8 }}
      livenessProbe:
        httpGet: { path: /livez, port: admin }
        {{- toYaml .Values.probes.liveness | nindent 8 }}
      readinessProbe:
        httpGet: { path: /readyz, port: admin }
        {{- toYaml .Values.probes.readiness | nindent 8 }}
      {{- if .Values.drain.preStopSeconds }}
      lifecycle:
        preStop:
          sleep: { seconds: {{ .Values.drain.preStopSeconds }} }
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
        {{- with .Values.extraVolumeMounts }}
        {{- tpl (toYaml .) $ | nindent 8 }}
        {{- end }}
    {{- with .Values.extraContainers }}
    {{- tpl (toYaml .) $ | nindent 4 }}
    {{- end }}
  volumes:
    - name: settings
      configMap: { name: {{ include "runledger.fullname" . }} }
    {{- if include "runledger.postgres" . }}
    - name: store
      secret:
        secretName: {{ include "runledger.storeSecret" . }}
        items: [{ key: {{ if .Values.store.postgres.existingSecret }}{{ .Values.store.postgres.key }}{{ else }}dsn{{ end }}, path: dsn }]
    {{- with .Values.store.postgres.tlsSecret }}
    - name: postgres
      # libpq's rule: a key that others can read is refused.
      secret: { secretName: {{ . }}, defaultMode: 0440 }
    {{- end }}
    {{- else if .Values.store.sqlite.existingClaim }}
    - name: ledger
      persistentVolumeClaim: { claimName: {{ .Values.store.sqlite.existingClaim }} }
    {{- end }}
    {{- if include "runledger.tls" . }}
    - name: tls
      secret:
        secretName: {{ include "runledger.tlsSecret" . }}
        items: [{ key: tls.crt, path: tls.crt }, { key: tls.key, path: tls.key }]
    {{- end }}
    {{- with .Values.tls.clients.caSecret }}
    - name: clients
      secret: { secretName: {{ . }} }
    {{- end }}
    {{- if include "runledger.accessFile" . }}
    - name: access
      secret:
        secretName: {{ default (printf "%s-access" (include "runledger.fullname" .)) .Values.access.existingSecret }}
        items: [{ key: {{ if .Values.access.existingSecret }}{{ .Values.access.key }}{{ else }}access.toml{{ end }}, path: access.toml }]
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
    {{- with .Values.extraVolumes }}
    {{- tpl (toYaml .) $ | nindent 4 }}
    {{- end }}
  topologySpreadConstraints:
    {{- if .Values.topologySpreadConstraints }}
    {{- toYaml .Values.topologySpreadConstraints | nindent 4 }}
    {{- else }}
    {{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - maxSkew: 1
      topologyKey: {{ $key }}
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
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with .Values.schedulerName }}
  schedulerName: {{ . }}
  {{- end }}
  {{- with .Values.dnsPolicy }}
  dnsPolicy: {{ . }}
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
