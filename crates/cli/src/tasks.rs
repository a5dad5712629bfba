//! `tollgate tasks`: work that outlives its request, such as video.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::accounts;
use super::admin_call::{AdminRequest, encoded};
use super::asked::{IdempotencyOptions, OutputOptions, Pages};
use super::exit::CODES;
use super::sheets::{ANNOUNCED, TASK, TASKS, TASKS_IN_DOUBT};

/// Work that outlives its request, such as video.
#[derive(Args, Debug)]
pub(super) struct TasksArgs {
    #[command(subcommand)]
    command: TasksCommand,
}

#[derive(Subcommand, Debug)]
enum TasksCommand {
    /// List tasks, newest first.
    #[command(after_help = format!("\
Examples:
  tollgate tasks list
  tollgate tasks list --account acct_3f1c0a5b7d9e2468 --state failed

{CODES}"))]
    List(ListTasks),
    /// Show one task, and what its customer is shown of it with `--json`.
    #[command(after_help = format!("\
Examples:
  tollgate tasks show acct_3f1c0a5b7d9e2468 task_019c1402a1f0d3b2c4a5000000000007

{CODES}"))]
    Show(ShowTask),
    /// List the submits of which nobody knows whether their upstream took them, oldest first.
    #[command(after_help = format!("\
Examples:
  tollgate tasks in-doubt

{CODES}"))]
    InDoubt(TasksInDoubt),
    /// End a task whose submit is in doubt: say what its customer pays.
    #[command(after_help = format!("\
Examples:
  tollgate tasks resolve task_019c1402a1f0d3b2c4a5000000000007 --void
  tollgate tasks resolve task_019c1402a1f0d3b2c4a5000000000007 --charge 0.35

{CODES}"))]
    Resolve(ResolveTask),
    /// Announce the end of a task to its webhook once more.
    #[command(after_help = format!("\
Examples:
  tollgate tasks announce acct_3f1c0a5b7d9e2468 task_019c1402a1f0d3b2c4a5000000000007

{CODES}"))]
    Announce(Announce),
}

#[derive(Args, Debug)]
struct ListTasks {
    /// Those of one account.
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    /// Those that are `open`, `in_doubt`, `succeeded`, `failed`, `expired` or `cancelled`.
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    #[command(flatten)]
    pages: Pages,
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Args, Debug)]
struct ShowTask {
    /// The account's id.
    account: String,
    /// The task's id.
    task: String,
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Args, Debug)]
struct TasksInDoubt {
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Args, Debug)]
struct ResolveTask {
    /// The task's id.
    task: String,
    #[command(flatten)]
    end: End,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    asked: OutputOptions,
}

/// What the customer pays.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct End {
    /// The customer pays nothing.
    #[arg(long)]
    void: bool,
    /// The customer pays these US dollars, at most the hold.
    #[arg(long, value_name = "AMOUNT")]
    charge: Option<String>,
}

#[derive(Args, Debug)]
struct Announce {
    /// The account's id.
    account: String,
    /// The task's id.
    task: String,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    asked: OutputOptions,
}

/// Where one account's task is.
fn path(account: &str, task: &str) -> String {
    format!("{}/tasks/{}", accounts::path(account), encoded(task))
}

impl TasksArgs {
    /// Runs the command and says with what to exit.
    ///
    /// # Errors
    /// What the gateway says, or that it says nothing.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            TasksCommand::List(ListTasks { account, state, pages, asked }) => {
                let query = [("account", account.as_deref()), ("state", state.as_deref())];
                asked.list("/admin/v1/tasks", &query, &pages, &TASKS)
            }
            TasksCommand::Show(ShowTask { account, task, asked }) => {
                asked.show(&AdminRequest::get(path(&account, &task)), &TASK)
            }
            TasksCommand::InDoubt(TasksInDoubt { asked }) => {
                asked.show(&AdminRequest::get("/admin/v1/tasks/in-doubt"), &TASKS_IN_DOUBT)
            }
            TasksCommand::Resolve(ResolveTask { task, end, once, asked }) => {
                let body = match end.charge {
                    None => json!({"action": "void"}),
                    Some(amount) => json!({"action": "charge", "amount": amount}),
                };
                let ask = AdminRequest::post(format!("/admin/v1/tasks/{}/resolve", encoded(&task)));
                asked.show(&ask.with(body).once(&once.id()), &TASK)
            }
            TasksCommand::Announce(Announce { account, task, once, asked }) => {
                let ask = AdminRequest::post(format!("{}/announce", path(&account, &task)));
                asked.show(&ask.once(&once.id()), &ANNOUNCED)
            }
        }
    }
}
