use std::pin::Pin;

use futures_util::FutureExt as _;
use tokio::time::advance;

use super::*;

const LONG: Duration = Duration::from_mins(1);

type Asked = Pin<Box<dyn Future<Output = Result<Turn, Duration>>>>;

fn ask(turns: &Arc<Turns>, caller: CallerKey) -> Asked {
    let turns = turns.clone();
    let mut asked: Asked = Box::pin(async move { turns.turn(caller, LONG).await });
    // A turn that is free is kept by the future until it is looked at.
    assert!(asked.as_mut().now_or_never().is_none_or(|turn| panic!("{turn:?} was not to be free")));
    asked
}

fn has_turn(asked: &mut Asked) -> Option<Turn> {
    asked.as_mut().now_or_never().map(Result::unwrap)
}

fn connection(number: u64) -> CallerKey {
    CallerKey::new(number, None)
}

/// These have had a turn long ago.
async fn are_known(turns: &Arc<Turns>, connections: impl Iterator<Item = u64>) {
    for number in connections {
        drop(at_once(turns, connection(number)).await);
    }
    advance(NEW_FOR).await;
}

async fn at_once(turns: &Arc<Turns>, caller: CallerKey) -> Turn {
    turns.turn(caller, Duration::ZERO).await.expect("a turn is free")
}

#[tokio::test(start_paused = true)]
async fn a_caller_has_half_of_the_turns_and_another_one_gets_its_own_at_once() {
    let turns = Turns::new(2);
    let _first = at_once(&turns, connection(1)).await;
    let mut more: Vec<Asked> = (0..64).map(|_| ask(&turns, connection(1))).collect();
    let other = at_once(&turns, connection(2)).await;
    drop(other);
    assert!(more.iter_mut().all(|asked| has_turn(asked).is_none()));
}

#[tokio::test(start_paused = true)]
async fn long_turns_leave_one_for_what_is_short() {
    let turns = Turns::new(2);
    let long = turns.long_turn(connection(1), Duration::ZERO).await.expect("it is the only one");
    let refused = turns.long_turn(connection(2), Duration::ZERO).await;
    assert!(refused.is_err(), "the other turn is kept");
    for _ in 0..3 {
        drop(at_once(&turns, connection(3)).await);
    }
    drop(long);
    let _next = turns.long_turn(connection(2), Duration::ZERO).await.expect("the first has ended");
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_long_turn_lasts_has_a_short_one_beside_it() {
    let turns = Turns::new(2);
    let _long = turns.long_turn(connection(1), Duration::ZERO).await.expect("it is the only one");
    let _short = at_once(&turns, connection(1)).await;
}

#[tokio::test(start_paused = true)]
async fn callers_that_have_used_much_leave_a_turn_for_one_that_has_not() {
    let turns = Turns::new(2);
    for number in [1, 2] {
        let much = at_once(&turns, connection(number)).await;
        advance(Duration::from_secs_f64(1.1 * MUCH_USE_SECONDS)).await;
        drop(much);
    }
    let greedy = at_once(&turns, connection(1)).await;
    let mut waits = ask(&turns, connection(2));
    drop(at_once(&turns, connection(3)).await);
    assert!(has_turn(&mut waits).is_none());
    let forgotten = waits.await.expect("what was used long ago is forgotten");
    drop((greedy, forgotten));
    assert_eq!(turns.state().long, 0);
}

#[tokio::test(start_paused = true)]
async fn of_two_namespaces_the_one_that_used_less_is_next_however_many_callers_the_other_has() {
    let turns = Turns::new(2);
    let of = |number, namespace| CallerKey::new(number, None).within(namespace);
    let (first, second) = (at_once(&turns, of(1, "large")).await, at_once(&turns, of(2, "large")).await);
    let mut large: Vec<Asked> = (3..64).map(|number| ask(&turns, of(number, "large"))).collect();
    let mut small = ask(&turns, of(64, "small"));
    advance(Duration::from_millis(10)).await;
    drop(first);
    assert!(has_turn(&mut small).is_some(), "it came last, and is first");
    assert!(large.iter_mut().any(|asked| has_turn(asked).is_some()), "what it gave back goes on");
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn an_agent_on_many_connections_is_one_caller() {
    let turns = Turns::new(2);
    let agent = |number| CallerKey::new(number, Some(b"agent"));
    let _first = at_once(&turns, agent(1)).await;
    let _waits = ask(&turns, agent(2));
    let _other = at_once(&turns, CallerKey::new(3, Some(b"other"))).await;
}

#[tokio::test(start_paused = true)]
async fn who_has_used_little_of_late_is_next() {
    let turns = Turns::new(1);
    are_known(&turns, 1..=3).await;
    for _ in 0..10 {
        let turn = at_once(&turns, connection(1)).await;
        advance(Duration::from_millis(100)).await;
        drop(turn);
    }
    let busy = at_once(&turns, connection(2)).await;
    let (mut often, mut rarely) = (ask(&turns, connection(1)), ask(&turns, connection(3)));
    drop(busy);
    assert!(has_turn(&mut often).is_none());
    drop(has_turn(&mut rarely).expect("it has used nothing"));
    assert!(has_turn(&mut often).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_has_gone_holds_up_nobody_and_one_that_waits_too_long_is_told() {
    let turns = Turns::new(1);
    let first = at_once(&turns, connection(1)).await;
    drop(ask(&turns, connection(2)));
    let late = turns.turn(connection(3), Duration::from_secs(2)).await;
    assert_eq!(late.unwrap_err(), Duration::from_secs(2));
    let patient = ask(&turns, connection(4));
    drop(first);
    // The call goes before it has looked at the turn that it was given.
    drop(patient);
    let _next = at_once(&turns, connection(5)).await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_have_gone_do_not_pile_up_and_those_between_them_keep_their_order() {
    let turns = Turns::new(1);
    let first = at_once(&turns, connection(1)).await;
    let mut stay = Vec::new();
    for number in 0..10_000 {
        let asked = ask(&turns, connection(2));
        if number % 1_000 == 0 {
            stay.push(asked);
        }
    }
    assert!(turns.state().waiting[&(connection(2), Length::Short)].calls.len() <= TIDY_MIN + 1, "the others have gone");
    drop(first);
    for asked in &mut stay {
        drop(has_turn(asked).expect("it is the next"));
    }
    let _last = at_once(&turns, connection(3)).await;
    assert!(turns.state().waiting.is_empty(), "callers that do not wait are forgotten");
}

#[tokio::test(start_paused = true)]
async fn callers_whose_use_is_remembered_are_bounded() {
    let turns = Turns::new(1);
    for number in 1..=4 * CALLERS_MAX as u64 {
        let turn = at_once(&turns, connection(number)).await;
        advance(Duration::from_millis(1)).await;
        drop(turn);
        assert!(turns.state().users.len() <= CALLERS_MAX + 1);
    }
}

/// Takes a turn for a while.
async fn uses(turns: &Arc<Turns>, caller: CallerKey, time: Duration) {
    let turn = at_once(turns, caller).await;
    advance(time).await;
    drop(turn);
}

#[tokio::test(start_paused = true)]
async fn who_comes_on_a_new_connection_each_time_comes_after_one_that_is_known_and_has_used_less_than_all_of_them() {
    let turns = Turns::new(1);
    are_known(&turns, 1..=1).await;
    uses(&turns, connection(1), Duration::from_millis(50)).await;
    for number in 2..10 {
        uses(&turns, connection(number), Duration::from_millis(20)).await;
    }
    let busy = at_once(&turns, connection(10)).await;
    let mut newcomers: Vec<Asked> = (11..20).map(|number| ask(&turns, connection(number))).collect();
    let mut known = ask(&turns, connection(1));
    drop(busy);
    assert!(newcomers.iter_mut().all(|asked| has_turn(asked).is_none()), "they have used nothing, each by itself");
    drop(has_turn(&mut known).expect("it came last, and is first"));
    for newcomer in &mut newcomers {
        drop(has_turn(newcomer).expect("in the order of their arrival"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_waits_for_those_before_it_and_a_known_agent_on_a_new_connection_is_none() {
    let turns = Turns::new(1);
    let agent = |number| CallerKey::new(number, Some(b"agent"));
    drop(at_once(&turns, agent(1)).await);
    advance(NEW_FOR).await;
    // A newcomer that asks again has used more than the next one, and is not behind it for that.
    uses(&turns, connection(2), Duration::from_millis(100)).await;
    let busy = at_once(&turns, connection(3)).await;
    let (mut first, mut second) = (ask(&turns, connection(2)), ask(&turns, connection(4)));
    let mut known = ask(&turns, agent(5));
    drop(busy);
    assert!(has_turn(&mut first).is_none() && has_turn(&mut second).is_none());
    drop(has_turn(&mut known).expect("the agent has used nothing of late"));
    assert!(has_turn(&mut second).is_none());
    drop(has_turn(&mut first).expect("it came before the other"));
    drop(has_turn(&mut second).expect("it is the last"));
}

#[tokio::test(start_paused = true)]
async fn what_newcomers_have_used_makes_nobodys_short_turn_a_long_one() {
    let turns = Turns::new(2);
    for number in 2..10 {
        uses(&turns, connection(number), Duration::from_secs_f64(MUCH_USE_SECONDS)).await;
    }
    let _long = turns.long_turn(connection(10), Duration::ZERO).await.expect("it is the only one");
    let _short = at_once(&turns, connection(11)).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_caller_uses_counts_in_every_namespace_with_and_without_an_identity() {
    for is_proven in [true, false] {
        let turns = Turns::new(1);
        let caller = |number: u64, namespace: &str| {
            let key = CallerKey::new(number, None).within(namespace);
            if is_proven { key.proven(&number) } else { key }
        };
        for number in 1..=3 {
            drop(at_once(&turns, caller(number, "other")).await);
        }
        advance(NEW_FOR).await;
        uses(&turns, caller(1, "own"), Duration::from_millis(50)).await;
        for nth in 0..40 {
            uses(&turns, caller(2, &format!("namespace-{nth}")), Duration::from_millis(10)).await;
        }
        let busy = at_once(&turns, caller(3, "other")).await;
        let mut many: Vec<Asked> = (40..80).map(|nth| ask(&turns, caller(2, &format!("namespace-{nth}")))).collect();
        let mut honest = ask(&turns, caller(1, "own"));
        drop(busy);
        assert!(many.iter_mut().all(|asked| has_turn(asked).is_none()), "none of these namespaces has used anything");
        assert!(has_turn(&mut honest).is_some(), "{is_proven}");
    }
}
