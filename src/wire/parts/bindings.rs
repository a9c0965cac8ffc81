//! What a run is bound to: its route, and ids of others.

use crate::domain::{Bindings, BindingsChange, Route, Run};
use crate::wire::scalars::text;
use crate::wire::validate::Violations;
use runledger_proto::v1;

impl Violations {
    /// A route, absent when unspecified.
    pub(in crate::wire) fn route(&mut self, field: &str, number: i32) -> Option<Route> {
        match v1::Route::try_from(number) {
            Ok(v1::Route::Unspecified) => None,
            Ok(v1::Route::Mcp) => Some(Route::Mcp),
            Ok(v1::Route::Cli) => Some(Route::Cli),
            Ok(v1::Route::Http) => Some(Route::Http),
            Err(_) => {
                self.push(field, format!("{number} is not a value of Route"));
                None
            }
        }
    }
}

pub(in crate::wire) fn of_start(request: &mut v1::StartRunRequest, violations: &mut Violations) -> BindingsChange {
    let route = violations.route("route", request.route);
    let mut link = |field, value: &mut String| violations.link(field, std::mem::take(value));
    let tab_group_id = link("tab_group_id", &mut request.tab_group_id);
    let audit_session_id = link("audit_session_id", &mut request.audit_session_id);
    let workflow_id = link("workflow_id", &mut request.workflow_id);
    BindingsChange { route, fallback_used: request.fallback_used, tab_group_id, audit_session_id, workflow_id }
}

pub(in crate::wire) fn of_update(request: &mut v1::UpdateRunRequest, violations: &mut Violations) -> BindingsChange {
    let mut link = |field, value: &mut Option<String>| violations.link_change(field, value.take());
    let audit_session_id = link("audit_session_id", &mut request.audit_session_id);
    let tab_group_id = link("tab_group_id", &mut request.tab_group_id);
    let workflow_id = link("workflow_id", &mut request.workflow_id);
    let route = violations.route("route", request.route);
    BindingsChange { route, fallback_used: request.fallback_used, tab_group_id, audit_session_id, workflow_id }
}

pub(in crate::wire) fn show(run: &Run, shown: &mut v1::Run) {
    let Bindings { route: channel, fallback_used, tab_group_id, audit_session_id, workflow_id } = &run.bindings;
    shown.route = route(*channel).into();
    shown.fallback_used = *fallback_used;
    shown.tab_group_id = text(tab_group_id.as_ref());
    shown.audit_session_id = text(audit_session_id.as_ref());
    shown.workflow_id = text(workflow_id.as_ref());
}

pub(in crate::wire) fn show_change(change: &BindingsChange, changes: &mut v1::RunChanges) {
    let BindingsChange { route: channel, fallback_used, tab_group_id, audit_session_id, workflow_id } = change;
    changes.route = channel.map(|known| route(Some(known)).into());
    changes.fallback_used = *fallback_used;
    changes.tab_group_id.clone_from(tab_group_id);
    changes.audit_session_id.clone_from(audit_session_id);
    changes.workflow_id.clone_from(workflow_id);
}

fn route(route: Option<Route>) -> v1::Route {
    match route {
        None => v1::Route::Unspecified,
        Some(Route::Mcp) => v1::Route::Mcp,
        Some(Route::Cli) => v1::Route::Cli,
        Some(Route::Http) => v1::Route::Http,
    }
}

#[cfg(test)]
pub(in crate::wire) mod tests {
    use super::*;

    /// Bindings that have something in every field.
    pub(in crate::wire) fn whole() -> Bindings {
        Bindings {
            route: Some(Route::Cli),
            fallback_used: true,
            tab_group_id: Some("tabs".into()),
            audit_session_id: Some("audit".into()),
            workflow_id: Some("workflow".into()),
        }
    }

    /// Sets the fields of a run that show these links.
    pub(in crate::wire) fn shown(run: &mut v1::Run) {
        run.route = v1::Route::Cli.into();
        run.fallback_used = true;
        run.tab_group_id = "tabs".into();
        run.audit_session_id = "audit".into();
        run.workflow_id = "workflow".into();
    }
}
