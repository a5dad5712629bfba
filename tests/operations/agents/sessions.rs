//! The sessions: a share of all cells in each run of the tests, all of them as a proof.

use super::agent::Agent;
use super::cell::Cell;
use super::page::{self, Row};
use super::upstream::Upstream;

/// Plays the cells of an agent, writes or compares their rows of the page, and fails for those that are no
/// success.
fn play(cells: impl Iterator<Item = Cell>) {
    let rows: Vec<Row> = cells
        .map(|cell| {
            let result = cell.result();
            if let Err(fault) = &result {
                println!("{cell:?}: {fault}");
            }
            Row::new(cell, &result)
        })
        .collect();
    page::check(&rows);
}

/// Each dialect once, with the agent's names in turn.
fn share(agent: Agent) {
    let models = agent.models().iter().cycle();
    let cells = Upstream::ALL.into_iter().zip(models);
    let cells = cells.map(|(upstream, model)| Cell { agent, model, upstream });
    play(cells.filter(|cell| !is_refused_as_it_is(*cell)));
}

#[test]
fn claude_code_over_every_dialect() {
    share(Agent::ClaudeCode);
}

#[test]
fn codex_over_every_dialect() {
    share(Agent::CodexHttp);
}

#[test]
fn codex_over_websockets_and_every_dialect() {
    share(Agent::CodexWebsocket);
}

#[test]
fn opencode_over_every_dialect() {
    share(Agent::OpencodeChat);
}

#[test]
fn gemini_cli_over_every_dialect() {
    share(Agent::GeminiCli);
}

/// Cells that are refused, as `docs/clients.md` says.
fn is_refused_as_it_is(cell: Cell) -> bool {
    let is_refused = match cell.agent {
        // opencode marks prompts of these names for a cache, which strict providers of chat completions
        // refuse. What is relayed byte for byte is between the two.
        // GPT-5.4 and later take tools beside reasoning over responses alone, where the shipped catalogue
        // sends such requests (`translated.chat_tools`).
        Agent::OpencodeChat => cell.model.starts_with("claude") || cell.model == "gpt-5.5",
        _ => false,
    };
    is_refused && cell.is_native()
}

/// All names of all agents, over all dialects: some ten minutes.
#[test]
#[ignore = "a proof: it plays 90 sessions"]
fn every_name_over_every_dialect() {
    let agents = [
        Agent::ClaudeCode,
        Agent::CodexHttp,
        Agent::CodexWebsocket,
        Agent::OpencodeChat,
        Agent::OpencodeResponses,
        Agent::OpencodeMessages,
        Agent::GeminiCli,
    ];
    for agent in agents {
        for model in agent.models() {
            let cells = Upstream::ALL.into_iter().map(|upstream| Cell { agent, model, upstream });
            play(cells.filter(|cell| !is_refused_as_it_is(*cell)));
        }
    }
}
