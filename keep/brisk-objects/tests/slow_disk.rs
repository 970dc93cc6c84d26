//! Tasks on a disk that is slow for the whole process, so this is the only test of its program.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brisk_objects::{AsyncDatabase, Options, Record};

#[derive(Record, Debug, Clone, PartialEq)]
struct Line {
    #[key(auto)]
    id: u64,
    #[index]
    text: String,
}

/// Slows the disk of a path down for this process, until it is dropped.
struct SlowDisk {
    group: PathBuf,
    home: PathBuf,
}

impl SlowDisk {
    fn of(path: &Path, reads_per_second: u32) -> Self {
        let device = fs::metadata(path).unwrap().dev();
        let disk = brisk_io::BlockDevice::of(device).expect("the file is on one disk");
        let device = fs::read_to_string(disk.directory().join("dev")).unwrap();
        let device = device.trim();
        let groups = Path::new("/sys/fs/cgroup");
        // Version 1 has a directory for each controller, and version 2 one for all.
        let is_first = groups.join("blkio").is_dir();
        let (home, file, limit) = match is_first {
            true => (
                groups.join("blkio"),
                "blkio.throttle.read_iops_device",
                format!("{device} {reads_per_second}"),
            ),
            false => {
                fs::write(groups.join("cgroup.subtree_control"), "+io").unwrap();
                let limit = format!("{device} riops={reads_per_second}");
                (groups.to_owned(), "io.max", limit)
            }
        };
        // Where this process is now.
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = own.lines().find_map(|line| {
            let (controllers, place) = line.split_once(':')?.1.split_once(':')?;
            let is_it = controllers.split(',').any(|name| name == "blkio");
            (is_it || !is_first && controllers.is_empty()).then(|| place.trim_start_matches('/'))
        });
        let home = (home.join(own.unwrap()), home);
        let group = home.1.join(format!("brisk-objects-{}", std::process::id()));
        fs::create_dir(&group).unwrap();
        let this = Self {
            group,
            home: home.0,
        };
        fs::write(this.group.join(file), limit).unwrap();
        fs::write(this.group.join("cgroup.procs"), "0").unwrap();
        this
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        fs::write(self.home.join("cgroup.procs"), "0").unwrap();
        fs::remove_dir(&self.group).unwrap();
    }
}

/// How late a timer was at most.
#[derive(Debug, Clone, Copy, Default)]
struct Late {
    /// Where its thread waited for the disk meanwhile.
    by_a_read: Duration,
    /// At all. Others may keep the processors busy.
    at_all: Duration,
}

/// How often this thread has waited for the disk so far, by its faults.
fn waits_of_thread() -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    // Number 12, as proc(5) counts them. The first behind the name is number 3.
    let faults = fields.split_whitespace().nth(12 - 3).unwrap();
    faults.parse().unwrap()
}

/// The disk gives 2 reads in a second. So a task that waited for one would make the timer of another one half a second late.
#[tokio::test]
async fn a_timer_is_not_late_because_of_a_read_from_a_slow_disk() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = home.path().join("lines.db");
    // SAFETY: nothing else writes to the file.
    let db = unsafe { Options::new().collection::<Line>().open(&path) }.unwrap();
    let text = |id: u64| format!("{id:0100}");
    db.write(|tx| {
        (1..=300_000).try_for_each(|id| tx.insert(&Line { id, text: text(id) }).map(|_key| ()))
    })
    .unwrap();
    let db = AsyncDatabase::new(db).unwrap();
    // All that this needs of the program is in memory.
    db.get::<Line>(1_000u64).await.unwrap();
    let file = fs::File::open(&path).unwrap();
    brisk_io::evict(&file).unwrap();
    // What was believed before is over.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let slow = SlowDisk::of(&path, 2);
    let (tell, mut told) = tokio::sync::watch::channel(Late::default());
    // On the same thread as the reads: this runtime has one.
    let timer = tokio::spawn(async move {
        let every = Duration::from_millis(1);
        loop {
            let (asked, waits) = (Instant::now(), waits_of_thread());
            tokio::time::sleep(every).await;
            let late = asked.elapsed() - every;
            let waited = waits_of_thread() != waits;
            tell.send_modify(|latest| {
                latest.at_all = latest.at_all.max(late);
                if waited {
                    latest.by_a_read = latest.by_a_read.max(late);
                }
            });
        }
    });
    let begun = Instant::now();
    told.changed().await.unwrap();
    let found = db.get::<Line>(50_000u64).await.unwrap().unwrap();
    assert_eq!(found.text, text(50_000));
    told.changed().await.unwrap();
    // Far from that: a fault of a mapping reads several megabytes around it, which are in memory by now.
    let many = db.get_many::<Line, _>([150_000u64, 250_000]).await.unwrap();
    assert!(many.iter().all(Option::is_some));
    let few = db.read(|snapshot| {
        let query = snapshot.query::<Line>();
        query.range(200_000u64..200_003).count()
    });
    assert_eq!(few.await.unwrap(), 3);
    let took = begun.elapsed();
    drop(slow);
    // If it was late, it has told that before.
    told.mark_unchanged();
    told.changed().await.unwrap();
    timer.abort();
    let latest = *told.borrow();
    // Otherwise the disk was not slow, and this proves nothing.
    assert!(took > Duration::from_secs(1), "{took:?}");
    assert!(
        latest.by_a_read <= Duration::from_millis(10) && latest.at_all < Duration::from_millis(250),
        "{latest:?} of {took:?}"
    );
    assert_eq!(db.counts().moved, 3);
}
