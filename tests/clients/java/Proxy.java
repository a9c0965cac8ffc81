package bridge;

import java.io.*;
import java.net.*;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/** A TCP proxy in front of the server, whose connections a test cuts. */
final class Proxy implements AutoCloseable {
    private static final int HEADERS = 1;

    final String address;
    final AtomicInteger connections = new AtomicInteger();
    /** Whether new connections are closed at once. */
    volatile boolean refuses;
    /** How many more answers are cut off: the server has made them, and the client never sees them. */
    final AtomicInteger answersToLose = new AtomicInteger();
    private final ServerSocket listener;
    private final Set<Socket> open = ConcurrentHashMap.newKeySet();

    Proxy(String server) throws IOException {
        listener = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"));
        address = "127.0.0.1:" + listener.getLocalPort();
        int colon = server.lastIndexOf(':');
        var target = new InetSocketAddress(server.substring(0, colon), Integer.parseInt(server.substring(colon + 1)));
        start(() -> {
            while (true) serve(listener.accept(), target);
        });
    }

    /** Cuts every connection that there is. */
    void cut() {
        open.forEach(Proxy::close);
    }

    @Override public void close() throws IOException {
        listener.close();
        cut();
    }

    private void serve(Socket client, InetSocketAddress target) throws IOException {
        connections.incrementAndGet();
        if (refuses) {
            close(client);
            return;
        }
        var server = new Socket();
        server.connect(target);
        open.add(client);
        open.add(server);
        start(() -> {
            try (client; server) {
                client.getInputStream().transferTo(server.getOutputStream());
            }
        });
        start(() -> {
            try (client; server) {
                frames(new DataInputStream(server.getInputStream()), client.getOutputStream());
            }
        });
    }

    /** Copies HTTP/2 frames up to the answer that is to be lost. */
    private void frames(DataInputStream from, OutputStream to) throws IOException {
        while (true) {
            var head = from.readNBytes(9);
            if (head.length < 9) return;
            if (head[3] == HEADERS && answersToLose.getAndUpdate(left -> Math.max(left - 1, 0)) > 0) return;
            to.write(head);
            to.write(from.readNBytes((head[0] & 0xff) << 16 | (head[1] & 0xff) << 8 | head[2] & 0xff));
        }
    }

    private static void close(Socket socket) {
        try {
            socket.close();
        } catch (IOException closed) {
            // Nothing is left to cut.
        }
    }

    private interface Task {
        void run() throws IOException;
    }

    private static void start(Task task) {
        var thread = new Thread(() -> {
            try {
                task.run();
            } catch (IOException cut) {
                // Such is the end of every connection here.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }
}
