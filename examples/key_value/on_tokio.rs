//! The store on tokio: one thread serves endpoints, and a TCP port beside them. Values have up to 3,839 bytes.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use intranode::{Address, AsyncEndpoint, Endpoint, EndpointError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::protocol::{Accepting, Frames, PAUSE, Table, frame};

type Shared = Arc<Mutex<Table>>;

fn answer(table: &Shared, call: &[u8]) -> Option<Vec<u8>> {
    table.lock().unwrap_or_else(PoisonError::into_inner).answer(call)
}

/// Serves until a client asks it to stop. Tells the address.
pub(crate) fn serve(name: &str, port: u16, listens: impl FnOnce(&Address) -> Result<()>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let endpoint = AsyncEndpoint::listen(name)?;
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let own = endpoint.address().context("it listens")?.clone();
        listens(&own.with_remote(&format!("tcp://{}", listener.local_addr()?))?)?;
        let table = Shared::default();
        tokio::select! {
            ended = serve_endpoint(&endpoint, &table) => ended,
            never = serve_tcp(&listener, &table) => match never {},
        }
    })
}

async fn serve_endpoint(endpoint: &AsyncEndpoint, table: &Shared) -> Result<()> {
    let mut buffer = [0; Endpoint::MAX_MESSAGE_BYTES];
    loop {
        let call = endpoint.recv_unexpected(&mut buffer).await?;
        let Some(answer) = answer(table, &buffer[..call.bytes]) else { return Ok(()) };
        match endpoint.try_send_expected(call.peer, call.tag, &answer) {
            Ok(true) => {}
            // It has 64 answers that it does not take: nobody else waits for it.
            Ok(false) => endpoint.disconnect(call.peer)?,
            // Clients come and go.
            Err(EndpointError::PeerGone { .. } | EndpointError::UnknownPeer { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

async fn serve_tcp(listener: &TcpListener, table: &Shared) -> Infallible {
    let mut accepting = Accepting::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                accepting.works();
                // What is wrong with one client is no reason to end.
                tokio::spawn(serve_client(stream, Arc::clone(table)));
            }
            Err(error) => {
                accepting.fails(&error);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn serve_client(mut stream: TcpStream, table: Shared) -> Result<()> {
    stream.set_nodelay(true)?;
    let (mut frames, mut bytes) = (Frames::default(), [0; 4096]);
    loop {
        let len = stream.read(&mut bytes).await?;
        if len == 0 {
            return Ok(());
        }
        frames.push(&bytes[..len]);
        while let Some((tag, call)) = frames.next()? {
            // Only a client of this user may stop the server.
            let Some(answer) = answer(&table, &call) else { return Ok(()) };
            stream.write_all(&frame(tag, &answer)).await?;
        }
    }
}
