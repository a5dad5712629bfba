//! A backup as docs/operations.md describes it.

mod harness;

use std::process::Command;

use harness::{Admin, Demo, sha256};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_running_gateways_journal_is_a_backup() {
    let (data, backup) =
        (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let mut demo = Demo::on(data.path());
    let customer = Admin::of(&demo).customer("5.00").await;
    demo.api_key.clone_from(&customer.key);
    let body = json!({"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}]});
    let call = |demo: &Demo| {
        demo.post("/v1/chat/completions", &body, "").bearer_auth(&demo.api_key).send()
    };
    for _ in 0..20 {
        assert_eq!(call(&demo).await.expect("an answer").status(), 200);
    }
    let before = Admin::of(&demo).settled(&customer.account).await;
    for name in ["journal", "webhook-key", "admin-token"] {
        let copied =
            Command::new("cp").arg("-r").arg(data.path().join(name)).arg(backup.path()).status();
        assert!(copied.is_ok_and(|status| status.success()), "{name}");
    }
    // What happens after the copy is not in it.
    assert_eq!(call(&demo).await.expect("an answer").status(), 200);
    let verified = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["ledger", "verify", "--data"])
        .arg(backup.path())
        .output()
        .expect("the binary runs");
    let report = String::from_utf8_lossy(&verified.stdout);
    assert!(verified.status.success() && report.contains("the ledger is sound"), "{report}");

    let token = sha256(demo.admin_token.as_bytes());
    let mut restored = Demo::on(backup.path());
    let after = Admin::of(&restored).balance(&customer.account).await;
    assert_eq!((after.granted, after.spent), (before.granted, before.spent), "{after:?}");
    assert_eq!(sha256(restored.admin_token.as_bytes()), token, "the same token");
    restored.api_key.clone_from(&customer.key);
    assert_eq!(call(&restored).await.expect("an answer").status(), 200, "the key works on");
}
