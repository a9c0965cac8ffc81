{{- define "runledger.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* At most 52 characters, so that what is put behind it leaves 63: `-headless`, `-tls`, a pod's ordinal. The name of a
Service begins with a letter, so one that is made of a release such as `20261127` has the chart's before it. */}}
{{- define "runledger.fullname" -}}
{{- $name := include "runledger.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- $both := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- $begins := ternary "" "runledger-" (not (regexMatch "^[0-9]" $both)) }}
{{- print $begins $both | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* A name that is made of the release's, quoted: `20261127`, `true` or `0755` is a text. Takes (list $ SUFFIX). */}}
{{- define "runledger.quoted" -}}
{{- print (include "runledger.fullname" (index . 0)) (index . 1) | quote }}
{{- end }}

{{- define "runledger.selector" -}}
app.kubernetes.io/name: {{ include "runledger.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: server
{{- end }}

{{/* metadata: of a resource. Takes (list $ SUFFIX LABELS ANNOTATIONS). */}}
{{- define "runledger.metadata" -}}
{{- $ := index . 0 }}
{{- $labels := index . 2 }}
{{- $annotations := merge (dict) (index . 3) $.Values.commonAnnotations -}}
name: {{ include "runledger.quoted" (list $ (index . 1)) }}
namespace: {{ $.Release.Namespace | quote }}
labels:
  app.kubernetes.io/name: {{ include "runledger.name" $ | quote }}
  app.kubernetes.io/instance: {{ $.Release.Name | quote }}
  app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
  app.kubernetes.io/part-of: runledger
  app.kubernetes.io/managed-by: {{ $.Release.Service | quote }}
  helm.sh/chart: {{ printf "%s-%s" $.Chart.Name $.Chart.Version | replace "+" "_" | quote }}
  {{- with merge (dict) $labels $.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "runledger.image" -}}
{{- $image := .Values.image -}}
{{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default .Chart.AppVersion $image.tag }}{{ end }}
{{- end }}

{{- define "runledger.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "runledger.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "runledger.postgres" -}}{{ if eq .Values.store.kind "postgres" }}true{{ end }}{{- end }}
{{- define "runledger.tls" -}}{{ if ne .Values.tls.source "none" }}true{{ end }}{{- end }}

{{/* Whether the chart makes the access file: not where another has it, nor where every caller is believed. */}}
{{- define "runledger.ownAccessFile" -}}
{{- if and (not .Values.access.existingSecret) (or .Values.access.file .Values.access.kubernetes) }}true{{ end }}
{{- end }}
{{- define "runledger.accessFile" -}}
{{- if or .Values.access.existingSecret (include "runledger.ownAccessFile" .) }}true{{ end }}
{{- end }}

{{/* The number of pods, by either name. */}}
{{- define "runledger.replicas" -}}
{{- if kindIs "invalid" .Values.replicaCount }}{{ toJson .Values.replicas }}{{ else }}{{ toJson .Values.replicaCount }}{{ end }}
{{- end }}

{{/* A probe of a pod: what the conventional value says, then the chart's own. Takes (list OWN CONVENTIONAL PATH). */}}
{{- define "runledger.probe" -}}
{{- $said := index . 1 | default dict }}
{{- $probe := merge (dict) $said (index . 0) }}
{{- if not (or $said.httpGet $said.grpc $said.tcpSocket $said.exec) }}
{{- $_ := set $probe "httpGet" (dict "path" (index . 2) "port" "admin") }}
{{- end }}
{{- toYaml $probe }}
{{- end }}

{{/* Several pods: of Postgres, and more than one by number or by the autoscaler. */}}
{{- define "runledger.several" -}}
{{- if and (include "runledger.postgres" .) (or .Values.autoscaling.enabled (gt (int (include "runledger.replicas" .)) 1)) }}true{{ end }}
{{- end }}

{{/* Whether clients need the CA of the certificate. */}}
{{- define "runledger.ownCA" -}}{{ if and (include "runledger.tls" .) (not .Values.tls.publicCA) }}true{{ end }}{{- end }}

{{/* Whether the chart makes a service account whose tokens are admin of everything. */}}
{{- define "runledger.admin" -}}
{{- with .Values.access }}{{ if and .admin.create .kubernetes (not .existingSecret) (not .file) }}true{{ end }}{{ end }}
{{- end }}

{{/* Whether the values have namespaces or lifecycles, for a job to make. */}}
{{- define "runledger.contents" -}}{{ if or .Values.namespaces .Values.lifecycles }}true{{ end }}{{- end }}

{{/* Whether `helm test` has a pod: not where clients show certificates and it has none. */}}
{{- define "runledger.test" -}}
{{- $demanded := and .Values.tls.clients.caSecret (eq .Values.tls.clients.auth "required") }}
{{- if and .Values.test.enabled (or (not $demanded) .Values.test.certificateSecret) }}true{{ end }}
{{- end }}

{{- define "runledger.tlsSecret" -}}
{{- if eq .Values.tls.source "secret" }}{{ .Values.tls.secret }}{{ else }}{{ include "runledger.fullname" . }}-tls{{ end }}
{{- end }}

{{- define "runledger.storeSecret" -}}
{{- default (printf "%s-store" (include "runledger.fullname" .)) .Values.store.postgres.existingSecret }}
{{- end }}

{{/* The names that clients may call the server by. */}}
{{- define "runledger.dnsNames" -}}
{{- $names := list }}
{{- if not .Values.tls.publicCA }}
{{- range $service := list (include "runledger.fullname" .) (printf "%s-headless" (include "runledger.fullname" .)) }}
{{- range $suffix := list "" (printf ".%s" $.Release.Namespace) (printf ".%s.svc" $.Release.Namespace) (printf ".%s.svc.cluster.local" $.Release.Namespace) }}
{{- $names = append $names (print $service $suffix) }}
{{- end }}
{{- end }}
{{- $names = append $names "localhost" }}
{{- end }}
{{- toJson (concat $names .Values.tls.extraDnsNames) }}
{{- end }}

{{/* The settings as TOML, sorted by their names. */}}
{{- define "runledger.settings" -}}
{{- $own := dict "listen" (printf "%s:50051" .Values.listenHost) "admin_listen" (printf "%s:%d" .Values.listenHost (int .Values.admin.port)) }}
{{- if include "runledger.postgres" . }}
{{- $_ := set $own "store_file" "/etc/runledger/store/dsn" }}
{{- if eq .Values.migrate "serve" }}{{ $_ := set $own "migrate" true }}{{ end }}
{{- else }}
{{- $_ := set $own "store" "sqlite:/var/lib/runledger/ledger.db" }}
{{- end }}
{{- if include "runledger.tls" . }}
{{- $_ := set $own "tls_cert" "/etc/runledger/tls/tls.crt" }}
{{- $_ := set $own "tls_key" "/etc/runledger/tls/tls.key" }}
{{- end }}
{{- with .Values.tls.clients }}
{{- if .caSecret }}
{{- $_ := set $own "tls_client_ca" (printf "/etc/runledger/clients/%s" .caKey) }}
{{- if .crlKey }}{{ $_ := set $own "tls_client_crl" (printf "/etc/runledger/clients/%s" .crlKey) }}{{ end }}
{{- $_ := set $own "tls_client_auth" .auth }}
{{- end }}
{{- end }}
{{- if include "runledger.accessFile" . }}
{{- $_ := set $own "access_file" "/etc/runledger/access/access.toml" }}
{{- end }}
{{- if .Values.insecure }}{{ $_ := set $own "insecure" true }}{{ end }}
{{- $all := merge (dict) $own .Values.settings }}
{{- range $key := keys $all | sortAlpha }}
{{ $key }} = {{ get $all $key | toJson }}
{{- end }}
{{- end }}

{{/* Everything that would not work together, told at once. */}}
{{- define "runledger.check" -}}
{{- $wrong := list }}
{{- with .Values.store }}
{{- if eq .kind "postgres" }}
{{- if not (or .postgres.existingSecret .postgres.dsn) }}
{{- $wrong = append $wrong "store.postgres: a location is needed: existingSecret names a Secret that has it, or dsn is the location itself" }}
{{- else if and .postgres.existingSecret .postgres.dsn }}
{{- $wrong = append $wrong "store.postgres: existingSecret and dsn are both given: which of them has the location?" }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.tls }}
{{- if and (eq .source "secret") (not .secret) }}
{{- $wrong = append $wrong "tls.secret: it is needed for the source `secret`" }}
{{- end }}
{{- if and (eq .source "certManager") (not .certManager.issuerRef.name) }}
{{- $wrong = append $wrong "tls.certManager.issuerRef.name: it is needed for the source `certManager`" }}
{{- end }}
{{- if and .publicCA (not .extraDnsNames) }}
{{- $wrong = append $wrong "tls.extraDnsNames: with tls.publicCA, the name that the certificate has" }}
{{- end }}
{{- if and .publicCA (has .source (list "generated" "none")) }}
{{- $wrong = append $wrong (printf "tls.publicCA: nobody knows a CA of the source `%s`" .source) }}
{{- end }}
{{- if and .clients.caSecret (eq .source "none") }}
{{- $wrong = append $wrong "tls.clients.caSecret: clients show certificates over TLS only, and tls.source is `none`" }}
{{- end }}
{{- if and (eq .source "none") (not $.Values.insecure) }}
{{- $wrong = append $wrong "tls.source: without TLS, everybody on the way can read callers' tokens; where that is wanted, set insecure" }}
{{- end }}
{{- end }}
{{- if and (not (include "runledger.accessFile" .)) (not .Values.insecure) }}
{{- $wrong = append $wrong "access: without an access file every caller is believed; where that is wanted, set insecure" }}
{{- end }}
{{- if and .Values.access.existingSecret .Values.access.file }}
{{- $wrong = append $wrong "access: existingSecret and file are both given: which of them has the access file?" }}
{{- end }}
{{- if and .Values.autoscaling.enabled (not (include "runledger.postgres" .)) }}
{{- $wrong = append $wrong "autoscaling: SQLite has one pod; store.kind `postgres` has any number" }}
{{- end }}
{{- if and .Values.autoscaling.enabled (lt (int .Values.autoscaling.maxReplicas) (int .Values.autoscaling.minReplicas)) }}
{{- $wrong = append $wrong "autoscaling.maxReplicas: it is less than minReplicas" }}
{{- end }}
{{- if and .Values.grpcRoute.enabled (not .Values.grpcRoute.parentRefs) }}
{{- $wrong = append $wrong "grpcRoute.parentRefs: a route needs a Gateway" }}
{{- end }}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) }}
{{- $wrong = append $wrong "ingress.hosts: an Ingress needs a host" }}
{{- end }}
{{- if include "runledger.contents" . }}
{{- if and (include "runledger.accessFile" .) (not (include "runledger.admin" .)) (not .Values.contentsJob.tokenSecret) }}
{{- $wrong = append $wrong "contentsJob.tokenSecret: who makes namespaces and puts lifecycles is an admin, and the chart makes none with this access" }}
{{- end }}
{{- if and .Values.tls.clients.caSecret (eq .Values.tls.clients.auth "required") (not .Values.contentsJob.certificateSecret) }}
{{- $wrong = append $wrong "contentsJob.certificateSecret: clients must show certificates, and the job that makes namespaces and lifecycles is one" }}
{{- end }}
{{- range $index, $lifecycle := .Values.lifecycles }}
{{- $namespace := default "default" $lifecycle.namespace }}
{{- if and (ne $namespace "default") (not (hasKey $.Values.namespaces $namespace)) }}
{{- $wrong = append $wrong (printf "lifecycles[%d].namespace: %q is not among the namespaces" $index $namespace) }}
{{- end }}
{{- end }}
{{- end }}
{{- if $wrong }}
{{- fail (printf "\n\n%d of the values cannot hold:\n  - %s\n" (len $wrong) (join "\n  - " $wrong)) }}
{{- end }}
{{- end }}
