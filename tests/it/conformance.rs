//! The behaviours of every store: one list of behaviours, each a test of its own for each kind of store.

pub(crate) mod asking;
mod batches;
mod changes;
mod clocks;
mod fixture;
mod history;
mod leases;
mod lifecycles;
mod lists;
mod max_running;
mod model;
pub(crate) mod namespaces;
mod races;
mod ready;
mod redactions;
mod replays;
mod retention;
pub(crate) mod sound;
mod suspension;
mod sweeps;
mod tables;
mod together;
mod values;

use fixture::{Fixture, MemoryFixture, ObservedFixture, PostgresFixture, SqliteFixture};

/// Makes a macro that turns a list of behaviours into tests of a fixture. A behaviour that is on no list is dead code.
macro_rules! conformance {
    ($conforms:ident: $($topic:ident: [$($behaviour:ident)*])*) => {
        conformance! { @with ($) $conforms $($topic: [$($behaviour)*])* }
    };
    (@with ($d:tt) $conforms:ident $($topic:ident: [$($behaviour:ident)*])*) => {
        macro_rules! $conforms {
            ($d name:ident, $d fixture:ty) => {
                mod $d name {
                    use super::*;
                    $(mod $topic {
                        use super::*;
                        $(#[tokio::test]
                        async fn $behaviour() {
                            crate::conformance::$topic::$behaviour(<$d fixture>::new().await).await;
                        })*
                    })*
                }
            };
        }
    };
}

conformance! { conforms:
    clocks: [
        a_deadline_comes_when_its_length_has_passed_however_the_clock_is_set
        a_lease_lives_for_its_ttl_however_the_clock_is_set
        a_clock_that_was_ahead_for_a_moment_is_in_no_other_runs_times
        time_at_rest_is_counted_by_what_passes
    ]
    batches: [
        commands_on_one_run_are_decided_on_the_state_that_the_one_before_it_left
        a_refusal_leaves_its_neighbours_unharmed
        a_batch_that_makes_no_event_writes_nothing
        a_batch_of_512_commands_commits_whole
        a_batch_of_4_mib_commits_whole
        the_same_id_in_two_namespaces_is_two_runs
        positions_are_dense_and_from_1
        times_never_fall_when_the_clock_is_set_back_a_minute
        an_acknowledged_run_is_there_after_reopening
        a_settled_commit_was_applied_exactly_if_its_events_are_there
        a_probe_that_writes_leaves_nothing_to_see
    ]
    redactions: [
        a_history_is_rewritten_from_where_the_first_of_it_was_found
        a_history_that_was_looked_through_is_not_read_again
        a_look_at_another_past_is_not_believed
        a_redaction_tells_how_many_values_it_took_out
    ]
    replays: [
        a_retry_in_the_same_batch_is_replayed
        a_retry_after_later_calls_is_replayed_as_then
        a_retry_after_the_run_ended_is_replayed
        a_retry_after_reopening_is_replayed
        a_retry_with_its_old_expected_revision_is_replayed
        a_retry_at_another_replica_is_replayed
        the_same_request_id_with_another_digest_is_refused
        an_unchanged_call_is_not_remembered
        a_refused_call_is_not_remembered
        a_request_id_belongs_to_one_run
    ]
    retention: [
        what_is_due_is_purged_whole_and_nothing_else_goes
        what_stands_beside_a_run_is_counted_and_goes_with_it
        the_newest_event_of_a_shard_stays_until_another_follows
        whoever_looked_before_a_purge_is_told_of_it
        a_namespaces_retention_is_its_own
        what_was_found_by_settings_that_hold_no_more_stays
        a_run_is_kept_until_its_events_were_exported_where_its_namespace_wants_it
        another_retention_is_looked_for_from_the_beginning
        nothing_is_purged_within_an_hour_of_a_change
        what_cannot_be_read_in_one_shard_keeps_no_other_from_being_purged
        a_run_that_is_written_meanwhile_is_left_alone
        a_commit_that_knew_the_run_does_not_bring_it_back
        more_runs_than_one_purge_takes_are_all_purged
    ]
    races: [
        a_new_run_started_on_two_replicas_is_created_once
        concurrent_ends_have_one_winner_and_one_terminal_event
        an_abort_before_the_start_wins_for_good
        concurrent_updates_with_disjoint_keys_are_all_kept
        a_read_after_an_answer_sees_it_on_every_replica
    ]
    history: [
        a_run_of_100_events_reads_right_at_every_revision
        a_revision_that_no_event_made_has_no_state
        many_runs_are_read_as_of_their_revisions_and_as_of_the_heads
        the_longest_way_from_a_keyframe_is_below_8_mib
        events_are_paged_by_revision
        a_page_of_events_is_bounded_in_bytes
        events_read_back_as_they_were_decided
        an_unknown_run_has_no_record_and_no_history
    ]
    together: [
        runs_are_read_with_the_leases_that_they_keep
        runs_that_are_read_together_are_bounded_in_bytes
    ]
    leases: [
        a_lease_is_renewed_without_an_event
        only_the_holder_of_a_lease_that_is_not_over_renews_it
        many_leases_are_renewed_at_once
        a_lease_that_is_over_orphans_its_run_once
        of_a_renewal_and_a_sweep_the_first_wins
        of_a_completion_and_a_sweep_the_first_wins
        of_a_claim_and_the_old_holders_renewal_the_first_wins
        a_clock_that_is_set_back_ends_no_lease_of_the_living
        an_outage_ends_no_lease_of_the_living
        an_interruption_counts_for_a_lease_that_it_could_hurt_and_for_no_other
        a_dead_worker_is_found_after_one_ttl_of_uptime
        a_replica_that_restarts_again_and_again_does_not_keep_the_dead_alive
        a_claim_fences_the_holder_before
        of_many_claims_one_wins
        what_was_released_and_not_claimed_is_orphaned
        deadlines_and_graces_end_runs_and_nothing_before_them
        a_request_that_was_answered_before_the_end_is_in_the_record
        what_is_reported_late_is_kept_once_and_changes_no_status
    ]
    ready: [
        a_claim_that_was_not_begun_leaves_its_run_running_and_ready
        who_has_written_or_was_not_granted_a_claim_cannot_say_not_begun
        a_run_that_nobody_claims_again_ends_as_one_that_was_never_started
        a_request_to_abort_ends_a_run_that_is_ready_in_either_order
        a_run_that_is_ready_is_its_owners_as_it_was_before_the_claim
        a_run_that_is_ready_does_not_count_and_its_claim_does
        ready_runs_are_paged_in_the_order_of_their_creation
        of_two_attempts_of_one_request_one_claims_and_the_other_finds_that
        a_claim_is_given_back_unless_its_claimer_has_been_answered_meanwhile
        a_claim_whose_lease_was_renewed_is_not_given_back_by_the_authority
        in_one_batch_a_request_claims_once_and_is_given_back_and_claims_again
        a_request_is_forgotten_after_an_hour
    ]
    max_running: [
        a_claim_is_refused_while_as_many_run_as_it_allows
        a_run_counts_until_it_is_terminal
        what_was_started_or_claimed_without_a_limit_does_not_count
        in_one_batch_each_claim_counts_for_the_next_and_each_end_makes_room
        a_claim_beside_the_start_of_its_run_is_decided_when_what_counts_is_known
        claims_at_once_never_let_more_run_than_allowed
    ]
    lists: [
        a_list_and_a_count_are_of_the_runs_that_match
        a_page_goes_on_after_any_place
        pages_neither_skip_nor_repeat_while_runs_start_and_end
        a_run_that_leaves_the_filter_between_pages_moves_no_other
        what_was_acknowledged_is_listed_on_every_replica
        a_hostile_string_finds_its_own_runs_only
        a_page_of_runs_is_bounded_in_bytes
        a_page_that_looks_at_ten_thousand_runs_in_vain_ends_there
    ]
    changes: [
        an_empty_log_has_heads_at_zero_and_no_changes
        heads_are_the_last_positions
        changes_of_all_shards_are_merged_in_order
        calls_are_shown_in_their_order_when_the_clock_is_set_back
        pages_of_any_size_are_the_log_cut_in_pieces
        a_page_ends_where_the_first_cut_shard_ends
        paging_while_writers_write_misses_and_repeats_nothing
        big_events_come_in_pages
    ]
    namespaces: [
        a_namespace_is_made_changed_listed_and_deleted
        of_one_name_that_many_make_at_once_one_is_made_and_the_others_find_it
        a_run_is_created_only_in_a_namespace_that_is_there
        a_namespace_with_a_run_is_not_deleted
        of_a_start_and_a_deletion_the_first_wins
        a_quota_of_active_runs_is_exact_on_every_replica
        a_quota_of_stored_bytes_is_held_against_what_was_measured
        a_page_of_one_namespace_is_the_log_without_the_others
    ]
    lifecycles: [
        versions_follow_one_another_and_a_put_is_seen_by_every_replica
        of_puts_at_once_none_is_lost
        limits_on_names_versions_and_puts_are_kept
        a_namespace_that_is_made_anew_has_none_of_the_lifecycles_before
        the_loop_of_an_agent_is_bounded_and_its_phase_is_fresh
        every_end_of_the_loop_stops_and_has_its_word
        a_background_task_has_its_own_words_and_keeps_no_secret
        a_late_completion_of_a_run_whose_end_moved_it_is_judged_by_the_phase_before
    ]
    values: [
        hostile_strings_read_back_equal
        strings_of_full_length_read_back_equal
        numbers_read_back_equal
        deep_and_odd_metadata_reads_back_equal
        metadata_of_65536_bytes_is_kept_and_a_byte_more_changes_nothing
        thirty_two_labels_are_kept_and_one_more_changes_nothing
        metadata_survives_changes_that_do_not_touch_it
    ]
    model: [
        random_commands_make_the_store_the_fold_and_the_model_the_same
    ]
    suspension: [
        no_deadline_of_a_suspension_is_acted_upon_in_the_first_minute_after_an_outage
        a_suspension_that_nobody_ended_in_time_leads_to_what_was_said
        an_attempt_that_failed_leaves_its_run_for_the_next_claim
        a_late_completion_a_failing_attempt_and_the_next_claim_have_one_winner
        a_suspended_run_is_never_over_and_a_lease_that_is_over_may_be_suspended
        seed_002_needs_help_in_and_out_with_reasons
        seed_004_every_edge_of_its_graph_and_no_other
        what_was_given_with_a_resumption_outlives_the_store
        of_two_calls_about_a_suspension_each_order_has_its_answers
        of_a_suspension_and_a_heartbeat_the_lease_is_gone_after_both
        an_identity_that_executed_a_run_before_does_not_approve_it
    ]
}

// One or two of each path, past what counts the calls: a macro passes all calls on, and whoever lists no method of a path
// does not compile.
conformance! { conforms_observed:
    batches: [
        a_settled_commit_was_applied_exactly_if_its_events_are_there
        a_probe_that_writes_leaves_nothing_to_see
    ]
    retention: [
        what_is_due_is_purged_whole_and_nothing_else_goes
    ]
    history: [
        many_runs_are_read_as_of_their_revisions_and_as_of_the_heads
    ]
    leases: [
        a_lease_is_renewed_without_an_event
        deadlines_and_graces_end_runs_and_nothing_before_them
    ]
    lists: [
        a_page_goes_on_after_any_place
    ]
    changes: [
        pages_of_any_size_are_the_log_cut_in_pieces
    ]
    namespaces: [
        a_namespace_is_made_changed_listed_and_deleted
    ]
    lifecycles: [
        versions_follow_one_another_and_a_put_is_seen_by_every_replica
    ]
    model: [
        random_commands_make_the_store_the_fold_and_the_model_the_same
    ]
}

// Behaviours that are seen past the store: in its tables.
conformance! { conforms_on_disk:
    clocks: [
        a_clock_that_was_set_back_over_a_restart_keeps_no_run
    ]
    leases: [
        a_restart_of_any_length_gives_each_lease_one_whole_ttl
        renewals_that_could_not_be_made_count_as_an_outage
    ]
    lifecycles: [
        a_thousand_versions_are_right_in_a_small_memory
        what_remains_of_a_deleted_lifecycle_is_read_and_ended
    ]
    max_running: [
        a_value_that_nothing_counts_towards_is_forgotten
    ]
    suspension: [
        the_rows_of_a_run_at_rest_come_and_go_with_its_events
    ]
    sweeps: [
        runs_that_cannot_be_ended_hide_no_other_from_a_sweep
    ]
    tables: [
        the_columns_of_runs_are_the_run_and_each_of_its_fields_is_there_once
        the_columns_of_events_are_what_was_decided
        keyframes_stand_at_every_32nd_revision_and_are_the_run
        a_shard_goes_on_behind_its_newest_event_when_older_ones_are_gone
        an_event_that_cannot_be_read_stands_in_its_place_and_costs_no_other
        the_active_table_holds_the_runs_that_are_not_terminal
        a_run_that_the_database_refuses_is_surely_not_applied
        a_run_that_cannot_be_read_is_corrupt_by_name
    ]
}

conforms!(sqlite, SqliteFixture);
conforms!(memory, MemoryFixture);
conforms_observed!(observed, ObservedFixture);
conforms!(postgres, PostgresFixture);
conforms_on_disk!(sqlite_tables, SqliteFixture);
conforms_on_disk!(postgres_tables, PostgresFixture);
