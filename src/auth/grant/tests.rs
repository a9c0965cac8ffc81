use super::*;

fn patterns<T: FromIterator<Pattern>>(texts: &[&str]) -> T {
    texts.iter().map(|text| Pattern::parse(text).unwrap()).collect()
}

fn grant(namespaces: &[&str], roles: &[Role], agents: &[&str]) -> Grant {
    Grant { namespaces: patterns(namespaces), roles: roles.to_vec(), agents: patterns(agents) }
}

fn reporter() -> Grants {
    Grants::new(vec![grant(&["team-a"], &[Role::Reporter], &["bridge-*", "cron"])])
}

#[test]
fn what_was_not_granted_is_lacking_and_the_namespace_is_looked_at_first() {
    let grants = reporter();
    assert_eq!(grants.allow(Access::Read, "team-b"), Err(Lacking::Namespace));
    assert_eq!(grants.allow(Access::Settle, "team-b"), Err(Lacking::Namespace));
    assert_eq!(grants.allow(Access::Settle, "team-a"), Err(Lacking::Role(Access::Settle)));
    assert_eq!(grants.allow(Access::Read, "team-a"), Ok(()));
    assert_eq!(Grants::default().allow(Access::Read, "default"), Err(Lacking::Namespace));
}

#[test]
fn a_reporter_acts_as_its_own_agents_and_writes_their_runs() {
    let grants = reporter();
    let allowed = grants.allow_as(Access::Report, "team-a", Some("bridge-7".into())).unwrap();
    assert_eq!(allowed.agent_id.as_deref(), Some("bridge-7"));
    for (agent, is_own) in [("bridge-7", true), ("bridge-8", true), ("cron", true), ("crony", false), ("other", false)]
    {
        assert_eq!(allowed.agents.contains(agent), is_own, "{agent}");
        assert_eq!(grants.may_act_as("team-a", agent), is_own, "{agent}");
    }
    assert!(allowed.agents.is_confined());
    assert_eq!(grants.allow_as(Access::Report, "team-a", Some("other".into())), Err(Lacking::Agent));
    assert_eq!(grants.allow_as(Access::Read, "team-a", Some("other".into())), Err(Lacking::Agent), "reading, too");
}

#[test]
fn a_reporter_that_has_several_agents_names_one_to_report_and_none_to_read() {
    assert_eq!(reporter().allow_as(Access::Report, "team-a", None), Err(Lacking::Agent));
    assert_eq!(reporter().allow_as(Access::Read, "team-a", None).unwrap().agent_id, None);
}

#[test]
fn a_reporter_that_has_one_agent_need_not_name_it() {
    let grants = Grants::new(vec![grant(&["*"], &[Role::Reporter], &["bridge"])]);
    let allowed = grants.allow_as(Access::Report, "any", None).unwrap();
    assert_eq!(allowed.agent_id.as_deref(), Some("bridge"));
    assert!(allowed.agents.contains("bridge") && !allowed.agents.contains("bridge-2"));
}

#[test]
fn a_reporter_of_all_agents_and_an_operator_write_every_run() {
    let all = Grants::new(vec![grant(&["team-a"], &[Role::Reporter], &["*"])]);
    let operator = Grants::new(vec![grant(&["team-a"], &[Role::Operator], &["*"])]);
    for (grants, agents) in [(&all, Agents::AllAsReporter), (&operator, Agents::All)] {
        let allowed = grants.allow_as(Access::Report, "team-a", None).unwrap();
        assert_eq!(allowed, Allowed { agent_id: None, agents });
    }
    let both = Grants::new(all.iter().chain(operator.iter()).cloned().collect());
    assert!(both.allow_as(Access::Report, "team-a", None).unwrap().agents.is_operators());
}

#[test]
fn a_grant_for_one_namespace_gives_nothing_in_another() {
    let grants = Grants::new(vec![
        grant(&["team-a"], &[Role::Operator], &["*"]),
        grant(&["team-b"], &[Role::Reader], &[]),
        grant(&["team-c"], &[Role::Reporter], &["c"]),
    ]);
    assert_eq!(grants.allow_as(Access::Report, "team-b", Some("c".into())), Err(Lacking::Role(Access::Report)));
    let allowed = grants.allow_as(Access::Report, "team-c", Some("c".into())).unwrap();
    assert!(allowed.agents.is_confined());
    assert_eq!(grants.allow_as(Access::Report, "team-c", Some("a".into())), Err(Lacking::Agent));
}

#[test]
fn a_process_is_seen_only_by_whoever_operates_in_every_namespace() {
    let one = Grants::new(vec![grant(&["team-*"], &[Role::Operator], &[])]);
    assert_eq!(one.allow_everywhere(Access::Inspect), Err(Lacking::Role(Access::Inspect)));
    let all = Grants::new(vec![grant(&["*"], &[Role::Operator], &[])]);
    assert_eq!(all.allow_everywhere(Access::Inspect), Ok(()));
    let reader = Grants::new(vec![grant(&["*"], &[Role::Reader], &[])]);
    assert_eq!(reader.allow_everywhere(Access::Inspect), Err(Lacking::Role(Access::Inspect)));
}
