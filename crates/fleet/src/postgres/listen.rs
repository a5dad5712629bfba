//! Notifications of other nodes. They only save time: a poll backs each of them.

use std::future::poll_fn;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Connection, Error, NoTls, Socket};

use super::{CONNECT_TIMEOUT, Db, OPEN_TIMEOUT};

/// Announcements that wait for the node. What does not fit is dropped, and found by the poll.
const WAITING_MAX: usize = 256;
/// The wait before a lost connection is made again; it doubles with each failure.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// The longest such wait: the poll does the work meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// A notification on a LISTEN channel of PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelNotification {
    /// Channel of the notification.
    pub channel: String,
    /// The payload; empty for a new connection, as earlier notifications are lost and a poll is due.
    pub payload: String,
}

/// The reason why listening ended.
enum ListenEnd {
    /// The receiver was dropped.
    Unread,
    /// The database does not support LISTEN.
    Unsupported,
    /// The connection broke, for this cause.
    Broken(String),
}

impl Db {
    /// Listens to `channels` on a connection of its own, which is reopened when it breaks, until the receiver
    /// is dropped. A database without LISTEN sends nothing.
    pub fn listen(&self, channels: &'static [&'static str]) -> mpsc::Receiver<ChannelNotification> {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        tokio::spawn(listen(self.clone(), channels, sender));
        receiver
    }
}

async fn listen(
    db: Db,
    channels: &'static [&'static str],
    sender: mpsc::Sender<ChannelNotification>,
) {
    let mut wait = FIRST_WAIT;
    loop {
        let mut connected = false;
        match Box::pin(receive(&db, channels, &sender, &mut connected)).await {
            ListenEnd::Unread => return,
            ListenEnd::Unsupported => {
                log::info!(
                    place = db.place();
                    "the database knows no LISTEN: changes of other nodes are found by polling"
                );
                return;
            }
            ListenEnd::Broken(cause) => {
                log::debug!(place = db.place(), cause = cause.as_str(); "listening broke off");
            }
        }
        // Spread, since a restarted database loses all nodes in the same moment.
        wait = if connected { FIRST_WAIT } else { (wait * 2).min(WAIT_MAX) };
        tokio::select! {
            () = sender.closed() => return,
            () = tokio::time::sleep(wait.mul_f64(0.5 + fastrand::f64() / 2.0)) => {}
        }
    }
}

/// Connects and listens until the connection ends.
async fn receive(
    db: &Db,
    channels: &[&str],
    sender: &mpsc::Sender<ChannelNotification>,
    connected: &mut bool,
) -> ListenEnd {
    let config = &db.shared.config;
    let broken = |error: Error| ListenEnd::Broken(error.to_string());
    let late = || ListenEnd::Broken("no answer".to_owned());
    match &db.shared.tls {
        None => match tokio::time::timeout(OPEN_TIMEOUT, config.connect(NoTls)).await {
            Ok(Ok((client, connection))) => {
                attend(client, connection, channels, sender, connected).await
            }
            Ok(Err(error)) => broken(error),
            Err(_) => late(),
        },
        Some(tls) => match tokio::time::timeout(OPEN_TIMEOUT, config.connect(tls.clone())).await {
            Ok(Ok((client, connection))) => {
                attend(client, connection, channels, sender, connected).await
            }
            Ok(Err(error)) => broken(error),
            Err(_) => late(),
        },
    }
}

async fn attend<S>(
    client: Client,
    mut connection: Connection<Socket, S>,
    channels: &[&str],
    sender: &mpsc::Sender<ChannelNotification>,
    connected: &mut bool,
) -> ListenEnd
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let statements = channels.iter().map(|channel| format!("LISTEN {channel};"));
    let statements = statements.collect::<String>();
    let begin = tokio::time::timeout(CONNECT_TIMEOUT, client.batch_execute(&statements));
    let mut begin = std::pin::pin!(begin);
    loop {
        let message = tokio::select! {
            () = sender.closed() => return ListenEnd::Unread,
            begun = &mut begin, if !*connected => match begun {
                Ok(Ok(())) => {
                    *connected = true;
                    // What was announced before is lost: a look at everything is due now.
                    for channel in channels {
                        announce(sender, channel, "");
                    }
                    continue;
                }
                Ok(Err(error)) if is_unsupported(&error) => return ListenEnd::Unsupported,
                Ok(Err(error)) => return ListenEnd::Broken(error.to_string()),
                Err(_) => return ListenEnd::Broken("no answer".to_owned()),
            },
            message = poll_fn(|context| connection.poll_message(context)) => message,
        };
        match message {
            Some(Ok(AsyncMessage::Notification(notification))) => {
                announce(sender, notification.channel(), notification.payload());
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return ListenEnd::Broken(error.to_string()),
            None => return ListenEnd::Broken("the server ended the connection".to_owned()),
        }
    }
}

fn announce(sender: &mpsc::Sender<ChannelNotification>, channel: &str, payload: &str) {
    let announced =
        ChannelNotification { channel: channel.to_owned(), payload: payload.to_owned() };
    // A full queue: the node has enough to look at, and polls besides.
    drop(sender.try_send(announced));
}

fn is_unsupported(error: &Error) -> bool {
    error.code().is_some_and(|code| {
        *code == SqlState::FEATURE_NOT_SUPPORTED || *code == SqlState::SYNTAX_ERROR
    })
}
