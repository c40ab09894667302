import java.net.*;
import java.nio.*;
import java.nio.channels.*;
import java.util.*;

/** Echo ADDRESS serves TCP and UDP with one selector; Echo ADDRESS CONNECTIONS BYTES is its client, and compares. */
public class Echo {
	static final int PORT = 7007;

	public static void main(String[] a) throws Exception {
		if (a.length == 1) serve(a[0]);
		else check(a[0], Integer.parseInt(a[1]), Integer.parseInt(a[2]));
	}

	static void serve(String host) throws Exception {
		Selector selector = Selector.open();
		ServerSocketChannel l = ServerSocketChannel.open();
		l.bind(new InetSocketAddress(host, PORT), 200).configureBlocking(false);
		l.register(selector, SelectionKey.OP_ACCEPT);
		DatagramChannel u = DatagramChannel.open(StandardProtocolFamily.INET);
		u.bind(new InetSocketAddress(host, PORT)).configureBlocking(false);
		u.register(selector, SelectionKey.OP_READ);
		ByteBuffer datagram = ByteBuffer.allocate(65536);
		for (;;) {
			selector.select();
			for (SelectionKey k : selector.selectedKeys()) {
				if (k.isAcceptable()) {
					SocketChannel c = l.accept();
					if (c == null) continue;
					c.configureBlocking(false);
					c.register(selector, SelectionKey.OP_READ, ByteBuffer.allocate(32768));
				} else if (k.channel() == u) {
					datagram.clear();
					SocketAddress from = u.receive(datagram);
					if (from != null) u.send(datagram.flip(), from);
				} else {
					echo(k);
				}
			}
			selector.selectedKeys().clear();
		}
	}

	static void echo(SelectionKey k) throws Exception {
		SocketChannel c = (SocketChannel) k.channel();
		ByteBuffer b = (ByteBuffer) k.attachment();
		if (k.isReadable() && c.read(b) < 0) {
			c.close();
			return;
		}
		b.flip();
		c.write(b);
		b.compact();
		k.interestOps((b.position() > 0 ? SelectionKey.OP_WRITE : 0) | (b.hasRemaining() ? SelectionKey.OP_READ : 0));
	}

	static void check(String host, int connections, int bytes) throws Exception {
		Selector selector = Selector.open();
		byte[] want = new byte[bytes];
		new Random(1).nextBytes(want);
		for (int i = 0; i < connections; i++) {
			SocketChannel c = SocketChannel.open();
			c.configureBlocking(false);
			c.connect(new InetSocketAddress(host, PORT));
			c.register(selector, SelectionKey.OP_CONNECT, new int[2]);
		}
		ByteBuffer in = ByteBuffer.allocate(65536);
		for (int left = connections; left > 0;) {
			if (selector.select(30000) == 0) throw new Exception("nothing for 30 s");
			for (SelectionKey k : selector.selectedKeys()) {
				SocketChannel c = (SocketChannel) k.channel();
				int[] at = (int[]) k.attachment();
				if (k.isConnectable()) {
					c.finishConnect();
					k.interestOps(SelectionKey.OP_WRITE | SelectionKey.OP_READ);
				}
				if (k.isWritable()) {
					at[0] += c.write(ByteBuffer.wrap(want, at[0], bytes - at[0]));
					if (at[0] == bytes) k.interestOps(SelectionKey.OP_READ);
				}
				if (k.isReadable()) {
					int n = c.read(in.clear());
					if (n < 0 || !Arrays.equals(in.array(), 0, n, want, at[1], at[1] + n)) throw new Exception("the echo differs at " + at[1]);
					if ((at[1] += n) == bytes) {
						c.close();
						left--;
					}
				}
			}
			selector.selectedKeys().clear();
		}
		try (DatagramSocket u = new DatagramSocket()) {
			u.setSoTimeout(20000);
			u.connect(new InetSocketAddress(host, PORT));
			for (int i = 0; i < 200; i++) {
				u.send(new DatagramPacket(want, i, 1 + i * 5));
				DatagramPacket p = new DatagramPacket(new byte[2000], 2000);
				u.receive(p);
				if (!Arrays.equals(p.getData(), 0, p.getLength(), want, i, i + 1 + i * 5)) throw new Exception("datagram " + i);
			}
		}
		System.out.println("equal");
	}
}
