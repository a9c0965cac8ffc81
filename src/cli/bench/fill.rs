//! Where `runledger bench fill` writes: where its own command line says.

use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use crate::cli::context;
use crate::cli::exit::Stop;
use runledger_bench::fill::Plan;
use runledger_bench::servers::Reach;

#[derive(Args, Debug)]
pub(super) struct FillArgs {
    #[command(flatten)]
    pub(super) plan: Plan,
    #[command(flatten)]
    typed: TypedContext,
}

/// `--server` as a fill has it: no variable and no default stands in for it.
pub(super) fn without_substitute(flag: Arg) -> Arg {
    if flag.get_long() != Some("server") {
        return flag;
    }
    flag.env(Resettable::Reset).help(
        "The servers that write, replicas of one ledger: callers are spread over them. They are named here, or by a \
         --context: no variable, current context or default stands in for them",
    )
}

impl FillArgs {
    pub(super) fn reach(&mut self) -> Reach<'_> {
        self.plan.reach()
    }

    /// Refuses a fill whose command line names neither servers nor a context that has some: nothing takes its runs out of
    /// a ledger again, so it must not come to one by what a shell or a file was told long ago.
    pub(super) fn told_where(&mut self, context: Option<&str>) -> Result<(), Stop> {
        let (servers, _) = self.reach();
        let by_context =
            || Ok::<_, Stop>(context::selected(context)?.is_some_and(|(_, named)| !named.servers.is_empty()));
        if !servers.is_empty() || (self.typed.0 && by_context()?) {
            return Ok(());
        }
        Err(Stop::Usage(
            "name the servers by --server HOST:PORT, or by --context NAME of a context that has some: a fill goes to no \
             ledger that only a variable, the current context or a default names, since nothing takes its runs out of a \
             ledger again"
                .to_owned(),
        ))
    }
}

/// Whether the command line names a context, and not the environment.
#[derive(Debug)]
struct TypedContext(bool);

impl Args for TypedContext {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for TypedContext {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(matches.value_source("context") == Some(ValueSource::CommandLine)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
