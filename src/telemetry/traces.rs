//! Traces: which calls are recorded as spans, and the spans of a call from its headers to its commit.
//!
//! A span costs more than a whole commit's share of a command, and so does the question whether to make one, where the
//! SDK is asked: it builds the span first. So the decision is made here, by a call's headers, and a call that is not
//! sampled makes no span. That is also the reason for which spans are made by OpenTelemetry's own interface, and not by
//! those of `tracing`.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::Either;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use opentelemetry::trace::{
    Link, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId, TraceState,
    TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracer, SdkTracerProvider};

use super::meter::resource;
use super::otlp::{Collector, NoCollector};
use crate::domain::TraceContext;

/// Calls in a second that are recorded because their callers ask for it. Above, a caller would set this process's cost.
const ASKED_MAX: NonZeroU32 = NonZeroU32::new(100).expect("not zero");

/// Links of one commit's span.
const LINKS_MAX: usize = 128;

static TRACING: OnceLock<Tracing> = OnceLock::new();

struct Tracing {
    tracer: SdkTracer,
    /// The share of calls that are recorded although no caller asks for it: the bits of a float.
    ratio: AtomicU64,
    asked: DefaultDirectRateLimiter,
}

/// The spans of a process. Dropped, they are told no more.
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Begins to record `ratio` of all calls, and those whose callers ask for it.
    ///
    /// # Errors
    ///
    /// The collector cannot be called.
    pub fn begin(collector: &Collector, ratio: f64) -> Result<Self, NoCollector> {
        let batches = BatchConfigBuilder::default().with_scheduled_delay(Duration::from_secs(1)).build();
        let processor = BatchSpanProcessor::builder(collector.spans()?).with_batch_config(batches).build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_max_links_per_span(u32::try_from(LINKS_MAX).expect("a few"))
            .with_resource(resource())
            .build();
        let asked = RateLimiter::direct(Quota::per_second(ASKED_MAX));
        let _already = TRACING.set(Tracing {
            tracer: provider.tracer("runledger"),
            ratio: AtomicU64::new(ratio.to_bits()),
            asked,
        });
        Ok(Self(provider))
    }

    /// Sends the last spans, and ends. It blocks for so long at most.
    pub fn end(self, wait_max: Duration) {
        if let Err(error) = self.0.shutdown_with_timeout(wait_max) {
            tracing::debug!(%error, "the last spans were not sent");
        }
    }
}

/// Records another share of all calls from now on.
pub fn set_ratio(ratio: f64) {
    if let Some(tracing) = TRACING.get() {
        tracing.ratio.store(ratio.to_bits(), Ordering::Relaxed);
    }
}

/// A span that is being recorded. Clones are one span.
#[derive(Clone, Debug)]
pub struct Span(Context);

/// The trace that a call belongs to.
#[derive(Clone, Debug, Default)]
pub struct CallTrace {
    /// The call's span, or the span that it came from where the call itself is not recorded.
    pub context: Option<TraceContext>,
    /// The call's span, where it is recorded.
    pub span: Option<Span>,
}

/// The trace of a call that begins, if it belongs to one. `asked`: what its caller names, if it names one.
#[must_use]
pub fn call(method: &'static str, asked: Option<TraceContext>) -> Option<CallTrace> {
    let unrecorded = || asked.map(|asked| CallTrace { context: Some(asked), span: None });
    let Some(tracing) = TRACING.get() else { return unrecorded() };
    let is_recorded = match asked {
        None => {
            let ratio = f64::from_bits(tracing.ratio.load(Ordering::Relaxed));
            ratio > 0.0 && fastrand::f64() < ratio
        }
        Some(asked) => asked.sampled && tracing.asked.check().is_ok(),
    };
    if !is_recorded {
        return unrecorded();
    }
    let parent = asked.map_or_else(Context::new, |asked| Context::new().with_remote_span_context(remote(asked)));
    let attributes = [KeyValue::new("rpc.system.name", "grpc"), KeyValue::new("rpc.method", method)];
    let span = SpanBuilder::from_name(method).with_kind(SpanKind::Server).with_attributes(attributes);
    let span = Span(parent.with_span(span.start_with_context(&tracing.tracer, &parent)));
    Some(CallTrace { context: Some(span.context()), span: Some(span) })
}

/// The span of a commit for these calls, which are recorded: the child of the first, linked to the others.
#[must_use]
pub fn commit(calls: &[Span], id: &impl fmt::Display, shard: u16, commands: usize) -> Option<Span> {
    let (first, others) = calls.split_first()?;
    let tracing = TRACING.get()?;
    let id = id.to_string();
    let links = others.iter().take(LINKS_MAX).map(|call| Link::with_context(call.0.span().span_context().clone()));
    let attributes = [
        KeyValue::new("runledger.commit.id", id.clone()),
        KeyValue::new("runledger.shard", i64::from(shard)),
        KeyValue::new("runledger.batch.size", i64::try_from(commands).unwrap_or(i64::MAX)),
    ];
    let span = SpanBuilder::from_name("commit").with_attributes(attributes).with_links(links.collect());
    for call in calls {
        call.set("runledger.commit.id", id.clone());
    }
    Some(Span(first.0.with_span(span.start_with_context(&tracing.tracer, &first.0))))
}

/// The span of a part of what is done [`within`] a span; none where nothing is recorded. It ends when it is
/// dropped.
#[must_use]
pub fn part(name: &'static str) -> Option<PartSpan> {
    let span = current()?.span?;
    let tracing = TRACING.get()?;
    Some(PartSpan(Span(span.0.with_span(SpanBuilder::from_name(name).start_with_context(&tracing.tracer, &span.0)))))
}

/// See [`part`].
#[derive(Debug)]
pub struct PartSpan(Span);

impl Drop for PartSpan {
    fn drop(&mut self) {
        self.0.0.span().end();
    }
}

impl Span {
    /// Its place in the trace.
    #[must_use]
    pub fn context(&self) -> TraceContext {
        let span = self.0.span();
        let context = span.span_context();
        let trace_id = u128::from_be_bytes(context.trace_id().to_bytes());
        let span_id = u64::from_be_bytes(context.span_id().to_bytes());
        TraceContext { trace_id, span_id, sampled: context.is_sampled() }
    }

    /// Sets an attribute.
    pub fn set(&self, name: &'static str, value: impl Into<opentelemetry::Value>) {
        self.0.span().set_attribute(KeyValue::new(name, value));
    }

    /// Notes what happened now.
    pub fn event(&self, name: &'static str) {
        self.0.span().add_event(name, Vec::new());
    }

    /// Ends it. `failed`: why it is a failure of this service, if it is one.
    pub fn end(&self, failed: Option<&'static str>) {
        let span = self.0.span();
        if let Some(why) = failed {
            span.set_attribute(KeyValue::new("error.type", why));
            span.set_status(Status::error(why));
        }
        span.end();
    }
}

tokio::task_local! {
    static CURRENT: Box<CallTrace>;
}

/// Does work within a trace: [`current`] tells of it there. Most calls belong to none, and pay nothing.
pub fn within<F: Future>(trace: Option<Box<CallTrace>>, work: F) -> impl Future<Output = F::Output> {
    match trace {
        None => Either::Left(work),
        Some(trace) => Either::Right(CURRENT.scope(trace, work)),
    }
}

/// The trace that the present work belongs to.
#[must_use]
pub fn current() -> Option<CallTrace> {
    CURRENT.try_with(|trace| CallTrace::clone(trace)).ok()
}

/// Notes on the present call's span, where it is recorded, which run it is about.
pub fn current_run(namespace: &str, run_id: &str) {
    let _none = CURRENT.try_with(|trace| {
        if let Some(span) = &trace.span {
            span.set("runledger.namespace", namespace.to_owned());
            span.set("runledger.run.id", run_id.to_owned());
        }
    });
}

/// The id of the present work's trace, for log lines.
#[must_use]
pub fn current_id() -> Option<String> {
    CURRENT.try_with(|trace| trace.context.map(|context| context.trace_id())).ok().flatten()
}

fn remote(TraceContext { trace_id, span_id, sampled }: TraceContext) -> SpanContext {
    let flags = if sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    SpanContext::new(TraceId::from(trace_id), SpanId::from(span_id), flags, true, TraceState::default())
}
