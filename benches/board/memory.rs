//! Memory of requests that wait for their answers, and the disk's flush.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;

use crate::figures::Figures;
use crate::measure::REST;
use crate::rig::load::Connections;
use crate::rig::median::median;
use crate::rows;
use crate::subjects::Running;
use crate::work;

/// Requests that wait at one time. The kernel's count of resident pages is exact to some hundred KiB only, which
/// one request's memory would be lost in.
const WAITING: usize = 64;
/// Flushes of which the median is taken, and the bytes before each: a group of records.
const FLUSHES: usize = 200;
const FLUSH_BYTES: usize = 512;

/// The most that each of many waiting requests adds to the memory of its proxy, in KB. The connections are there
/// before and have served small chats, so their own buffers are not in it.
pub(crate) async fn waiting_requests(
    running: &Running,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    for (row, work) in
        [(&rows::AGENT_KB, &work::AGENT_LATE), (&rows::SCREENSHOT_KB, &work::SCREENSHOT_LATE)]
    {
        if !running.supports(work) {
            continue;
        }
        let small = running.aim(&work::INSTANT);
        let mut clients = Connections::open(&small, WAITING).await?;
        clients.exchange(2 * WAITING).await?;
        tokio::time::sleep(REST).await;
        let before = running.process.rss_mb()?;
        running.process.forget_peak()?;
        clients.turn_to(&running.aim(work));
        clients.exchange(WAITING).await?;
        let peak = running.process.peak_rss_mb()?;
        figures.add(row, running.subject, (peak - before) * 1e3 / WAITING as f64);
    }
    Ok(())
}

/// The median time of a flush to the disk of `directory`, in ms.
pub(crate) fn flush_ms(directory: &Path) -> anyhow::Result<f64> {
    let mut file = File::create(directory.join("flushes"))?;
    let mut times = Vec::with_capacity(FLUSHES);
    for _ in 0..FLUSHES {
        file.write_all(&[b'x'; FLUSH_BYTES])?;
        let begin = Instant::now();
        file.sync_data()?;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    median(times).context("no flushes")
}
