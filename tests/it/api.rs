//! The promises to clients, through real gRPC against the real binary: one list of behaviours, and each is a test of
//! its own on SQLite, on Postgres where the store matters, and on two servers over one Postgres database where a second
//! server matters.

mod archive;
mod attempts;
mod behind;
mod caller;
mod check;
mod checkpoints;
mod commands;
mod contents;
mod deadlines;
mod firehose;
mod history;
mod largest;
mod leases;
mod lifecycles;
mod limits;
mod lists;
mod malformed;
mod matrix;
mod namespaces;
mod order;
mod ownership;
mod place;
mod probes;
mod races;
mod redaction;
mod refused;
mod replays;
mod start;
mod surface;
mod suspension;
mod texts;
mod turns;
mod updates;
mod values;
mod wait_run;
mod watch;
mod watch_runs;
mod watchers;
mod watching;

/// Makes a macro that turns a list of behaviours into tests of one kind of place. One that is on no list is dead code.
macro_rules! behaviours {
    ($on:ident: $($topic:ident: [$($behaviour:ident)*])*) => {
        behaviours! { @with ($) $on $($topic: [$($behaviour)*])* }
    };
    (@with ($d:tt) $on:ident $($topic:ident: [$($behaviour:ident)*])*) => {
        macro_rules! $on {
            ($d name:ident, $d kind:ident) => {
                mod $d name {
                    $(mod $topic {
                        $(#[tokio::test]
                        async fn $behaviour() {
                            let place = crate::api::place::Place::of(crate::api::place::Kind::$d kind).await;
                            crate::api::$topic::$behaviour(place).await;
                        })*
                    })*
                }
            };
        }
    };
}

// What a request may be, how an answer is cut, and what a call waits for is the same on every store.
behaviours! { on_any_store:
    limits: [
        texts_are_limited_in_bytes
        ids_and_codes_have_their_alphabet
        a_request_id_is_at_most_128_bytes
        labels_are_limited_in_number_and_size
        metadata_is_limited_in_bytes_after_the_merge
        metadata_is_at_most_32_deep
    ]
    malformed: [
        what_is_no_message_is_the_callers_fault
        a_body_that_is_not_framed_as_grpc_is_an_invalid_argument
        a_request_above_4_mib_is_an_invalid_argument
        an_empty_message_names_what_is_missing
        one_answer_names_every_violation
        of_many_violations_20_are_listed_and_the_rest_counted
        an_unknown_enum_value_is_refused
        headers_are_validated
        an_agent_with_any_id_can_act
    ]
    commands: [
        a_list_of_commands_is_validated_whole
    ]
    check: [
        a_check_is_validated_whole
    ]
    lifecycles: [
        what_is_wrong_with_a_declaration_is_named_with_its_place
        a_masked_value_may_be_none_that_json_has
    ]
    history: [
        a_page_of_large_events_ends_early
    ]
    lists: [
        everything_that_is_wrong_with_a_filter_is_named
        no_page_of_runs_is_above_3_mib
    ]
    texts: [
        u_0000_is_refused_in_every_place
    ]
    largest: [
        the_largest_request_is_received
    ]
    wait_run: [
        a_wait_answers_before_the_calls_deadline
        a_wait_is_validated_whole
    ]
    watch_runs: [
        a_watch_of_all_runs_is_validated_whole
    ]
    deadlines: [
        a_watch_ends_at_its_deadline
    ]
    surface: [
        reflection_describes_the_service_in_both_versions
    ]
    suspension: [
        what_is_wrong_with_a_suspension_is_named_field_by_field
    ]
    attempts: [
        what_is_wrong_with_attempts_is_named
    ]
}

behaviours! { on_one_server:
    matrix: [
        every_status_answers_every_mutation
        every_status_answers_every_read
        an_unknown_run_is_not_found_by_any_read
    ]
    order: [
        the_namespace_comes_before_the_request
        the_request_comes_before_the_replay
        the_request_comes_before_existence
        the_replay_comes_before_identity
        the_replay_comes_before_ownership
        the_replay_comes_before_the_expected_revision
        existence_comes_before_ownership_and_the_expected_revision
        a_start_of_no_run_must_expect_none
        identity_comes_before_the_expected_revision
        identity_comes_before_the_transition
        ownership_comes_before_the_expected_revision
        ownership_comes_before_the_no_op_and_the_transition
        the_expected_revision_comes_before_the_no_op
        the_expected_revision_comes_before_the_transition
    ]
    start: [
        a_start_creates_the_run_as_it_was_asked_for
        another_identity_is_a_conflict
        an_agent_named_on_one_side_only_is_no_conflict
        a_start_of_a_pending_run_takes_over_what_it_names
        a_bare_start_of_a_pending_run_keeps_everything
        the_acting_agent_becomes_the_owner
    ]
    ownership: [
        the_owner_and_who_names_no_agent_may_do_everything
        an_ownerless_run_is_open_to_every_agent
        an_abort_is_open_to_every_agent
        every_event_tells_who_made_it
    ]
    check: [
        a_check_says_what_the_call_does
        a_check_changes_nothing_and_knows_the_owner
        a_check_is_of_a_status_or_of_a_run
    ]
    archive: [
        an_archived_run_leaves_the_lists_and_comes_back
        only_a_run_that_has_ended_is_archived_by_its_owner
        watches_show_what_becomes_of_an_archived_run
    ]
    redaction: [
        what_stands_beside_a_run_is_taken_out_as_well
        what_is_redacted_is_gone_from_every_answer_of_every_replica
        a_run_goes_on_after_a_redaction_as_before
        a_redaction_that_cannot_be_made_names_every_mistake_and_changes_nothing
    ]
    leases: [
        a_lease_is_shown_renewed_and_handed_over
        a_queue_is_served_first_in_first_out_and_shows_each_runs_place
        several_runs_are_claimed_in_one_call_and_come_again_with_its_request_id
        a_claim_of_several_runs_takes_what_an_answer_has_room_for
        many_leases_are_renewed_in_one_call_each_with_an_answer_of_its_own
        a_completion_claims_the_next_run_and_stands_whatever_becomes_of_the_claim
        who_does_not_hold_the_lease_is_told_who_does
        a_start_with_a_lease_is_replayed_with_it_and_another_grants_nothing
        a_request_to_abort_is_told_to_everyone
        a_watch_shows_progress_and_a_new_watch_does_not_repeat_it
        what_is_reported_late_is_shown_by_every_new_watch
        what_is_wrong_with_leases_is_named_field_by_field
    ]
    namespaces: [
        namespaces_are_listed_by_name_in_pages
        what_is_wrong_with_a_namespace_is_named
        a_run_elsewhere_is_answered_for_as_one_that_never_was
        lists_counts_claims_and_queues_end_at_the_wall
        cursors_and_tokens_are_noise_behind_the_wall
        a_namespace_that_nobody_made_answers_nothing
    ]
    lifecycles: [
        runs_are_listed_and_counted_by_phase
        a_lifecycle_that_is_built_in_is_put_by_the_first_start
        words_and_rules_outlive_a_crash_of_every_server
        a_limit_that_aborts_keeps_what_the_call_said
        a_lifecycle_belongs_to_its_namespace
    ]
    contents: [
        an_input_stands_beside_the_run_and_never_changes
        what_comes_late_is_kept_beside_the_presumed_end
        runs_are_found_by_the_runs_that_they_come_from
        contents_are_limited_in_bytes_on_the_wire_and_as_json
        a_retry_shows_the_run_as_then_and_writes_nothing_twice
        the_largest_end_of_each_kind_is_received_and_watched
    ]
    updates: [
        metadata_is_a_merge_patch
        absent_fields_stay_and_empty_ones_clear
        labels_merge_key_by_key
        a_fallback_never_goes_back
        an_update_that_changes_nothing_makes_no_event
        a_complete_may_carry_a_last_patch
    ]
    limits: [
        a_patch_may_delete_as_much_as_it_brings
    ]
    replays: [
        a_call_is_replayed_after_a_crash
        an_unchanged_call_is_not_remembered
        a_refused_call_is_not_remembered
        one_id_serves_one_run_only
    ]
    history: [
        a_page_is_as_long_as_it_was_asked_for
        a_token_that_was_not_given_out_for_this_run_is_refused
    ]
    lists: [
        every_field_of_a_filter_narrows_a_list_and_a_count
        a_page_of_runs_is_as_long_as_it_was_asked_for
        what_lies_behind_many_runs_that_do_not_match_is_listed_and_counted_by_one_call
        only_a_full_view_shows_metadata
        a_page_token_is_for_its_filter_and_its_ledger
        a_count_names_every_status_that_the_filter_lets_through
    ]
    watch: [
        a_watch_begins_after_any_revision
        a_watch_ahead_of_the_run_is_refused
    ]
    wait_run: [
        a_wait_that_is_over_answers_with_the_run_as_it_is
        nobody_waits_for_an_unknown_run
    ]
    watch_runs: [
        a_cursor_that_was_not_given_out_here_is_invalid
    ]
    surface: [
        every_health_service_answers
    ]
    watchers: [
        a_thousand_watchers_all_see_the_change
        a_slow_reader_gets_everything_in_order
    ]
    suspension: [
        a_suspended_run_and_a_ready_one_meet_every_call_as_the_table_says
        a_run_at_rest_leaves_its_slot_unless_it_keeps_it
        a_run_that_keeps_its_slot_waits_where_others_have_filled_its_value
    ]
}

behaviours! { on_one_or_two_servers:
    lifecycles: [
        a_lifecycle_is_put_read_and_listed_and_the_newest_is_pinned
        of_puts_at_once_each_is_a_version_or_unchanged
        a_run_is_walked_to_its_end_and_refused_on_the_way
    ]
    contents: [
        of_two_results_the_later_stands_and_it_outlives_an_abort
        a_link_is_added_once_whoever_adds_it_and_the_65th_is_refused
    ]
    start: [
        a_second_start_changes_nothing
        a_deferred_start_waits_in_pending
        without_any_id_every_start_is_a_run_of_its_own
        a_request_id_without_a_run_id_makes_one_run_on_any_replica
    ]
    ownership: [
        another_agent_may_not_update_complete_or_fail
    ]
    texts: [
        every_text_comes_back_as_it_was
        numbers_come_back_as_doubles
    ]
    namespaces: [
        a_namespace_is_made_read_changed_and_deleted
        a_watch_shows_its_own_namespace_and_goes_on_from_its_cursors
        a_start_above_the_quota_is_refused_until_a_run_ends
    ]
    replays: [
        an_applied_call_is_replayed_with_the_run_as_then
        a_call_is_replayed_while_others_follow
        the_same_id_for_another_request_is_refused
    ]
    commands: [
        each_command_has_the_answer_of_its_own_call
        commands_on_one_run_are_decided_in_their_order
        of_a_thousand_commands_five_hundred_may_be_refused_for_each_reason
        of_two_lists_on_the_same_runs_each_command_is_decided_once
        a_list_that_is_sent_again_is_replayed_command_by_command
        what_a_list_whose_caller_is_gone_has_done_is_told_by_the_same_list
        runs_are_shown_as_far_as_an_answer_has_room
        a_lifecycle_that_is_built_in_is_put_before_the_commands_that_need_it
    ]
    races: [
        concurrent_updates_of_disjoint_keys_are_all_kept
        one_of_complete_abort_and_fail_wins_and_the_losers_leave_no_trace
        a_run_started_on_both_servers_is_one_run
        a_repeated_nameless_start_meets_itself
        an_abort_before_the_start_wins
    ]
    history: [
        the_history_tells_what_each_call_set
        pages_follow_one_another_over_servers_and_while_the_run_goes_on
    ]
    lists: [
        pages_follow_one_another_over_servers_while_runs_start_and_end
        a_change_that_was_answered_is_listed_everywhere
    ]
    largest: [
        the_largest_run_goes_through_everything
    ]
    watch: [
        a_snapshot_comes_first_and_changes_follow
        a_change_at_another_server_arrives
        a_history_of_several_pages_and_keyframes_arrives_whole
        a_cut_watch_resumed_equals_an_uncut_one
    ]
    wait_run: [
        a_wait_for_a_terminal_run_answers_at_once
        a_wait_lasts_until_the_end_and_not_until_some_other_change
    ]
    watch_runs: [
        a_first_view_shows_what_was_asked_for
        a_run_that_leaves_a_filter_is_shown_once_more
        a_cursor_goes_on_with_another_filter_and_at_another_server
        a_first_view_that_is_cut_goes_on_as_it_was
    ]
    attempts: [
        an_attempt_that_failed_is_followed_by_whoever_claims_next
        a_run_between_its_attempts_is_aborted_at_once
    ]
    suspension: [
        a_run_is_suspended_by_its_holder_and_goes_on_under_another_one
        of_the_runs_that_wait_the_higher_priority_comes_first
        suspended_runs_are_listed_counted_and_waited_for
        a_heartbeat_and_progress_that_meet_a_suspension_are_taken_or_told_of_it
        a_run_that_is_ready_is_had_by_one_of_many_who_ask
    ]
}

// What one command in a list may be, and what becomes of it, is what holds of its own call.
behaviours! { as_commands:
    matrix: [
        every_status_answers_every_mutation
    ]
    order: [
        the_request_comes_before_the_replay
        the_request_comes_before_existence
        the_replay_comes_before_identity
        the_replay_comes_before_ownership
        the_replay_comes_before_the_expected_revision
        existence_comes_before_ownership_and_the_expected_revision
        a_start_of_no_run_must_expect_none
        identity_comes_before_the_expected_revision
        identity_comes_before_the_transition
        ownership_comes_before_the_expected_revision
        ownership_comes_before_the_no_op_and_the_transition
        the_expected_revision_comes_before_the_no_op
        the_expected_revision_comes_before_the_transition
    ]
    start: [
        a_start_creates_the_run_as_it_was_asked_for
        another_identity_is_a_conflict
        a_start_of_a_pending_run_takes_over_what_it_names
        the_acting_agent_becomes_the_owner
        without_any_id_every_start_is_a_run_of_its_own
        a_request_id_without_a_run_id_makes_one_run_on_any_replica
    ]
    ownership: [
        the_owner_and_who_names_no_agent_may_do_everything
        another_agent_may_not_update_complete_or_fail
        every_event_tells_who_made_it
    ]
    updates: [
        metadata_is_a_merge_patch
        absent_fields_stay_and_empty_ones_clear
        labels_merge_key_by_key
        an_update_that_changes_nothing_makes_no_event
    ]
    replays: [
        an_applied_call_is_replayed_with_the_run_as_then
        a_call_is_replayed_while_others_follow
        the_same_id_for_another_request_is_refused
        one_id_serves_one_run_only
    ]
    races: [
        concurrent_updates_of_disjoint_keys_are_all_kept
        one_of_complete_abort_and_fail_wins_and_the_losers_leave_no_trace
        a_repeated_nameless_start_meets_itself
    ]
    limits: [
        texts_are_limited_in_bytes
        metadata_is_limited_in_bytes_after_the_merge
    ]
    malformed: [
        one_answer_names_every_violation
        of_many_violations_20_are_listed_and_the_rest_counted
    ]
}

behaviours! { on_postgres:
    deadlines: [
        a_read_whose_deadline_passes_says_so
        a_mutation_whose_deadline_passes_says_whether_it_may_be_applied
    ]
}

on_any_store!(once, Sqlite);
on_one_server!(sqlite, Sqlite);
on_one_server!(postgres, Postgres);
on_one_or_two_servers!(sqlite_alone, Sqlite);
on_one_or_two_servers!(postgres_alone, Postgres);
on_one_or_two_servers!(replicas, Replicas);
on_postgres!(held, Postgres);
as_commands!(commands_of_one, Commands);
