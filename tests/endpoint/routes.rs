//! Case 64: one address for local and remote.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use intranode::{Address, Ended, Endpoint, EndpointError, Refusal, Route};
use libtest_mimic::Completion;
use nix::sys::signal::Signal;

use super::child::{self, Child};
use super::messages::start_echo;
use super::{Role, Test, unique};

pub(super) const TESTS: &[Test] = &[
    #[cfg(feature = "tokio")]
    ("case_64_one_address_local_and_remote_the_same_results", over_tokio::same_results),
    #[cfg(feature = "tokio")]
    ("case_64_a_route_that_is_dropped_leaves_no_connection", over_tokio::dropped),
    ("case_64_a_server_of_this_machine_is_local", local),
    ("case_64_another_boot_goes_remote", another_boot),
    ("case_64_a_name_that_nobody_listens_to_goes_remote", nobody),
    ("case_64_a_server_that_refuses_goes_remote", refused),
    ("case_64_a_server_that_does_not_answer_goes_remote", stopped),
    ("case_64_others_read_the_remote_part", naive),
];

pub(super) const ROLES: &[Role] = &[("listens and refuses", listens_and_refuses)];

const REMOTE: &str = "tcp://10.0.0.7:4000";

fn with_remote(address: &Address) -> Result<Address> {
    Ok(address.clone().with_remote(REMOTE)?)
}

/// The same name, of another machine, or of this one before it was booted.
fn of_another_boot(address: &Address) -> Result<Address> {
    let text = address.to_string();
    let (front, local) = text.rsplit_once("#intranode=").context("a remote part")?;
    let (_, name) = local.split_once('/').context("a name")?;
    Ok(format!("{front}#intranode=00000000-0000-0000-0000-000000000000/{name}").parse()?)
}

fn local() -> Result<Completion> {
    let (server, address) = start_echo()?;
    let mut client = Endpoint::client()?;
    for address in [with_remote(&address)?, address] {
        let Route::Local(peer) = client.route(&address)? else { anyhow::bail!("{address} is not local") };
        client.send_unexpected(peer, 1, b"over shared memory")?;
        ensure!(client.recv_expected(peer, 1, &mut [0; 64])? == 18);
    }
    drop(server);
    Ok(Completion::Completed)
}

fn another_boot() -> Result<Completion> {
    let (server, address) = start_echo()?;
    let elsewhere = of_another_boot(&with_remote(&address)?)?;
    ensure!(!elsewhere.is_local() && elsewhere.name() == address.name());
    let mut client = Endpoint::client()?;
    ensure!(client.route(&elsewhere)? == Route::Remote(REMOTE));
    let (_, local) =
        elsewhere.to_string().split_once('#').map(|(a, b)| (a.to_owned(), b.to_owned())).context("two")?;
    let without: Address = format!("intranode://{}", local.trim_start_matches("intranode=")).parse()?;
    let error = client.route(&without);
    ensure!(matches!(error, Err(EndpointError::NotLocal { .. })), "{error:?}");
    drop(server);
    Ok(Completion::Completed)
}

fn nobody() -> Result<Completion> {
    let address = Address::local(&unique())?;
    let mut client = Endpoint::client()?;
    ensure!(client.route(&with_remote(&address)?)? == Route::Remote(REMOTE));
    let error = client.route(&address);
    ensure!(matches!(error, Err(EndpointError::NobodyListens { .. })), "{error:?}");
    // What is due to the client itself would not be better by another way.
    let (server, address) = start_echo()?;
    let error = Endpoint::builder().max_peers(0).client()?.route(&with_remote(&address)?).map(drop);
    ensure!(matches!(error, Err(EndpointError::TooManyPeers { .. })), "{error:?}");
    drop(server);
    Ok(Completion::Completed)
}

fn listens_and_refuses(args: &[String]) -> Result<()> {
    let mut server = Endpoint::builder().max_peers(0).timeout(None).listen(&args[0])?;
    child::say("listens")?;
    // It is killed.
    server.recv_unexpected(&mut []).map(drop)?;
    Ok(())
}

fn refused() -> Result<Completion> {
    let name = unique();
    let mut server = Child::start("listens and refuses", &[&name])?;
    server.says("listens")?;
    let address = Address::local(&name)?;
    let mut client = Endpoint::client()?;
    ensure!(client.route(&with_remote(&address)?)? == Route::Remote(REMOTE));
    let error = client.route(&address);
    ensure!(
        matches!(error, Err(EndpointError::PeerGone { ended: Ended::Refused(Refusal::Full), .. })),
        "{error:?}"
    );
    // Nothing is reported of peers that the program has never had.
    let event = client.wait(Some(Duration::from_millis(20)))?;
    ensure!(event.is_none(), "{event:?}");
    drop(server);
    Ok(Completion::Completed)
}

fn stopped() -> Result<Completion> {
    let (server, address) = start_echo()?;
    server.signal(Signal::SIGSTOP)?;
    let mut client = Endpoint::builder().timeout(Duration::from_millis(50)).max_peers(1).client()?;
    // A second one has room: the first is given up.
    for _ in 0..2 {
        ensure!(client.route(&with_remote(&address)?)? == Route::Remote(REMOTE));
    }
    let error = client.route(&address);
    ensure!(matches!(error, Err(EndpointError::TimedOut { .. })), "{error:?}");
    ensure!(client.poll()?.is_none());
    server.signal(Signal::SIGCONT)?;
    let mut client = Endpoint::client()?;
    ensure!(matches!(client.route(&address)?, Route::Local(_)));
    Ok(Completion::Completed)
}

/// As a program finds host and port that has never heard of endpoints.
fn naive() -> Result<Completion> {
    let text = with_remote(&Address::local(&unique())?)?.to_string();
    let rest = text.strip_prefix("tcp://").context("a scheme")?;
    let host_and_port = rest.split(['/', '?', '#']).next().context("an authority")?;
    let address: std::net::SocketAddr = host_and_port.parse()?;
    ensure!(address.port() == 4000);
    Ok(Completion::Completed)
}

#[cfg(feature = "tokio")]
mod over_tokio {
    use std::future::Future;

    use intranode::AsyncEndpoint;
    use tokio::runtime::Builder;

    use super::super::event_loops::over_tcp::Anywhere;
    use super::super::event_loops::protocol::{LONGEST, STOP};
    use super::super::event_loops::start_store;
    use super::super::messages::pattern;
    use super::*;

    fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
        let limited =
            async { tokio::time::timeout(Duration::from_secs(60), future).await.context("it hangs")? };
        Builder::new_current_thread().enable_all().build()?.block_on(limited)
    }

    /// What a program gets: values, and errors.
    async fn program(own: &AsyncEndpoint, address: &Address, is_local: bool) -> Result<Vec<String>> {
        let mut client = Anywhere::new(own, address).await?;
        ensure!(client.is_local() == is_local, "{address}");
        let mut results = Vec::new();
        for (number, len) in [0, 1, 40, 41, 1000, LONGEST].into_iter().enumerate() {
            client.put(&format!("key {number}"), &pattern(number, len)).await?;
        }
        for number in 0..8 {
            results.push(format!("{:?}", client.get(&format!("key {number}")).await?));
        }
        // The server refuses it.
        results.push(format!("{:?}", client.call(&[99]).await?));
        results.push(format!("{:#}", client.put(&"x".repeat(256), b"").await.unwrap_err()));
        // It is too long for any transport.
        results.push(format!("{:#}", client.call(&[0; 4097]).await.unwrap_err()));
        results.push(format!("{:?}", client.get("key 1").await?));
        Ok(results)
    }

    pub(super) fn same_results() -> Result<Completion> {
        block_on(async {
            let own = AsyncEndpoint::client()?;
            for role in ["serves on tokio", "serves on mio"] {
                let (server, address) = start_store(role)?;
                let local = program(&own, &address, true).await?;
                let (again, address_again) = start_store(role)?;
                let remote = program(&own, &of_another_boot(&address_again)?, false).await?;
                ensure!(local == remote, "{local:?} and {remote:?}");
                // The server is the same one: what has gone one way is there for the other.
                let mut client = Anywhere::new(&own, &of_another_boot(&address)?).await?;
                ensure!(client.get("key 1").await? == Some(pattern(1, 1)));
                for (server, address) in [(server, address), (again, address_again)] {
                    let peer = own.connect(&address).await?;
                    own.send_unexpected(peer, 0, &[STOP]).await?;
                    server.ends()?;
                    // Nobody is there: neither here nor there.
                    let error = Anywhere::new(&own, &address).await.map(drop).unwrap_err();
                    let error = error.downcast_ref();
                    ensure!(
                        matches!(error, Some(EndpointError::Remote { operation: "open", .. })),
                        "{error:?}"
                    );
                }
            }
            Ok(Completion::Completed)
        })
    }

    pub(super) fn dropped() -> Result<Completion> {
        let (server, address) = start_echo()?;
        server.signal(Signal::SIGSTOP)?;
        block_on(async {
            let own = AsyncEndpoint::new(Endpoint::builder().max_peers(1).client()?)?;
            for _ in 0..3 {
                let route = tokio::time::timeout(Duration::from_millis(20), own.route(&address)).await;
                ensure!(route.is_err(), "{route:?}");
            }
            server.signal(Signal::SIGCONT)?;
            let Route::Local(peer) = own.route(&address).await? else { anyhow::bail!("it is local") };
            own.send_unexpected(peer, 1, b"?").await?;
            ensure!(own.recv_expected(peer, 1, &mut [0; 8]).await? == 1);
            Ok(Completion::Completed)
        })
    }
}
