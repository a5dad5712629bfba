//! `tollgate tasks`: work that outlives its request, such as video.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::accounts;
use super::admin_call::{Ask, encoded};
use super::asked::Asked;
use super::exit::CODES;
use super::sheets::{ANNOUNCED, TASKS_IN_DOUBT};

/// Work that outlives its request, such as video.
#[derive(Args, Debug)]
pub(super) struct TasksArgs {
    #[command(subcommand)]
    command: TasksCommand,
}

#[derive(Subcommand, Debug)]
enum TasksCommand {
    /// List the submits of which nobody knows whether their upstream took them, oldest first.
    #[command(after_help = format!("\
Examples:
  tollgate tasks in-doubt

{CODES}"))]
    InDoubt(InDoubt),
    /// Announce the end of a task to its webhook once more.
    #[command(after_help = format!("\
Examples:
  tollgate tasks announce acct_3f1c0a5b7d9e2468 task_019c1402a1f0d3b2c4a5000000000007

{CODES}"))]
    Announce(Announce),
}

#[derive(Args, Debug)]
struct InDoubt {
    #[command(flatten)]
    asked: Asked,
}

#[derive(Args, Debug)]
struct Announce {
    /// The account's id.
    account: String,
    /// The task's id.
    task: String,
    #[command(flatten)]
    asked: Asked,
}

impl TasksArgs {
    /// Runs the command and says with what to exit.
    ///
    /// # Errors
    /// What the gateway says, or that it says nothing.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            TasksCommand::InDoubt(InDoubt { asked }) => {
                asked.show(&Ask::get("/admin/v1/tasks/in-doubt"), &TASKS_IN_DOUBT)
            }
            TasksCommand::Announce(Announce { account, task, asked }) => {
                let (account, task) = (accounts::path(&account), encoded(&task));
                let ask = Ask::post(format!("{account}/tasks/{task}/announce"));
                asked.show(&ask, &ANNOUNCED)
            }
        }
    }
}
