//! What is allowed and easily overlooked.

use std::collections::BTreeSet;

use crate::domain::lifecycle::{BudgetThen, Lifecycle, LimitThen, Phase};

/// The kind of suspension that budgets and the limit of iterations bring.
const BUDGET: &str = "BUDGET";

/// What the author of a lifecycle should know, in a sentence each. None of it is wrong.
#[must_use]
pub fn notes(lifecycle: &Lifecycle) -> Vec<String> {
    let later = lifecycle.not_enforced();
    let unsupported = (!later.is_empty()).then(|| {
        format!("This release keeps and does not enforce yet, so no run starts with it: {}.", later.join(", "))
    });
    let unclear = two_of_a_kind(lifecycle).into_iter().chain(unsupported);
    if lifecycle.on_suspend.contains_key(BUDGET) {
        return unclear.collect();
    }
    let waits = "is suspended in the phase where it stands, and waits until somebody resumes it";
    let budgets = lifecycle.budgets.iter().enumerate().filter(|(_, budget)| match budget.then {
        BudgetThen::Suspend => true,
        BudgetThen::Signal | BudgetThen::Abort => false,
    });
    let budgets = budgets.map(|(index, budget)| format!("budgets[{index}]: a run that spent {} {waits}.", budget.name));
    let iterations = (lifecycle.max_iterations_then == Some(LimitThen::Suspend))
        .then(|| format!("max_iterations_then: a run that would go above its iterations {waits}."));
    budgets.chain(iterations).chain(unclear).collect()
}

/// Phases from which a kind of suspension leads to two: then it leads to none.
fn two_of_a_kind(lifecycle: &Lifecycle) -> Vec<String> {
    let kinds: BTreeSet<&str> = lifecycle.phases.iter().filter_map(|phase| phase.suspends.as_deref()).collect();
    let of_kinds = |from: &Phase| {
        let kinds = kinds.iter().filter(|kind| !lifecycle.on_suspend.contains_key(**kind));
        let following = kinds.map(|kind| (*kind, lifecycle.suspend_next(&from.name, kind)));
        let unclear = following.filter(|(_, following)| following.len() > 1);
        unclear
            .map(|(kind, following)| {
                let (name, following) = (&from.name, following.join(" and "));
                format!(
                    "phases.{name}: {following} both suspend by {kind}, so SuspendRun with this kind enters neither, unless \
                     it names one or on_suspend does."
                )
            })
            .collect::<Vec<_>>()
    };
    lifecycle.phases.iter().flat_map(of_kinds).collect()
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    #[test]
    fn a_suspension_that_only_a_resumption_ends_is_said() {
        let text = "name: a\nphases: {a: {initial: true, next: b}, b: {suspends: PAUSED, next: a}}\n\
                    budgets: [{name: tokens, limit: 1, then: SUSPEND}, {name: wall, limit: 1, then: ABORT}]\n\
                    max_iterations_then: SUSPEND\n";
        let told = notes(&read(text).unwrap());
        let waits = "is suspended in the phase where it stands, and waits until somebody resumes it.";
        let [budget, iterations, later] = &told[..] else { panic!("{told:?}") };
        assert_eq!(*budget, format!("budgets[0]: a run that spent tokens {waits}"));
        assert_eq!(*iterations, format!("max_iterations_then: a run that would go above its iterations {waits}"));
        assert!(later.contains("no run starts with it") && later.contains("budgets"), "{later}");
        let with_phase = format!("{text}on_suspend: {{BUDGET: b}}\n");
        assert_eq!(notes(&read(&with_phase).unwrap()).len(), 1, "somebody resumes it");
        assert_eq!(notes(&read("name: a\nphases: {a: {initial: true}}\n").unwrap()), [""; 0]);
    }
}
