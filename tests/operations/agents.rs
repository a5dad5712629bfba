//! Coding agents as their makers ship them, in sessions of twenty turns on a scripted model: shell commands,
//! reads side by side, pictures, edits, commands that fail, with thinking on. Each agent uses its own names
//! of models, over upstreams of every dialect, whose simulated validators are strict.
//!
//! `tests/clients/session.json` has the session and the tools of each agent, `tests/clients/versions.json`
//! the versions, `docs/clients.md` the results.

mod agent;
mod balance;
mod bodies;
mod cell;
mod check;
mod page;
mod script;
mod sessions;
mod upstream;
mod versions;
