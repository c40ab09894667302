package interop

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	pires "github.com/pires/go-proxyproto"

	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/proxyproto"
)

// headerServer accepts connections, and answers the first byte after each client's header with what
// the header says. Without that byte the answer's end could reach a proxy before the byte does, and
// a close with unread bytes is a reset.
func headerServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answerHeader(c)
		}
	}()
	return l.Addr().String()
}

func answerHeader(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	var in []byte
	for {
		h, n, err := proxyproto.Parse(in, 0)
		if err != nil {
			fmt.Fprintf(c, "%v\n", err)
			return
		}
		if n > 0 && len(in) > n {
			fmt.Fprintln(c, describeHeader(h))
			return
		}
		piece := make([]byte, 512)
		m, err := c.Read(piece)
		if err != nil {
			return
		}
		in = append(in, piece[:m]...)
	}
}

// describeHeader says in one line what a header says.
func describeHeader(h proxyproto.Header) string {
	var b strings.Builder
	fmt.Fprintf(&b, "v%d local=%v sum=%v %v>%v", h.Version, h.Local, h.Checksum, h.Source, h.Destination)
	for name, typ := range map[string]proxyproto.Type{"authority": proxyproto.TypeAuthority, "alpn": proxyproto.TypeALPN, "id": proxyproto.TypeUniqueID} {
		if v, ok := h.TLVs.Find(typ); ok {
			fmt.Fprintf(&b, " %s=%s", name, v)
		}
	}
	if s, ok := h.TLVs.SSL(); ok {
		version, _ := s.TLVs.Find(proxyproto.SubtypeVersion)
		cn, _ := s.TLVs.Find(proxyproto.SubtypeCommonName)
		key, _ := s.TLVs.Find(proxyproto.SubtypeKeyAlgorithm)
		fmt.Fprintf(&b, " client=%d verify=%d version=%s cn=%s key=%s", s.Client, s.Verify, version, cn, key)
	}
	return b.String()
}

// daemonOf starts a program on loopback and waits until it listens on every address.
func daemonOf(t *testing.T, addrs []string, name string, args ...string) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s: %s", name, out.Bytes())
		}
	})
	for _, addr := range addrs {
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			c, err := net.Dial("tcp", addr)
			if err == nil {
				_ = c.Close()
				break
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
}

const haproxyConfig = `
defaults
	mode tcp
	timeout connect 30s
	timeout client 30s
	timeout server 30s
	timeout check 30s
listen v1
	bind 127.0.0.1:%[1]s
	server s %[5]s send-proxy
listen v2
	bind 127.0.0.1:%[2]s
	unique-id-format "id-%%cp"
	server s %[5]s send-proxy-v2 proxy-v2-options crc32c,unique-id
listen tls
	bind 127.0.0.1:%[3]s ssl crt %[6]s ca-file %[6]s verify optional alpn h2
	server s %[5]s send-proxy-v2-ssl-cn proxy-v2-options ssl,cert-cn,cert-key,authority,crc32c
listen local
	bind 127.0.0.1:%[7]s
	mode http
	http-request return status 200 content-type text/plain lf-string "%%[srv_is_up(check/s)]"
listen check
	mode tcp
	bind 127.0.0.1:%[8]s
	option tcp-check
	tcp-check connect send-proxy
	tcp-check expect string local=true
	server s %[5]s check inter 100ms rise 1 fall 1 init-addr none send-proxy-v2
frontend receiver
	bind 127.0.0.1:%[4]s accept-proxy
	mode http
	http-request return status 200 content-type text/plain lf-string "%%[src] %%[src_port] %%[dst] %%[dst_port] %%[fc_pp_authority] %%[fc_pp_unique_id]"
`

// haproxy starts HAProxy and returns the addresses of its listeners in the order of the configuration's first names.
func haproxy(t *testing.T, upstream string, cert tls.Certificate) (v1, v2, secure, receiver, status string) {
	t.Helper()
	needs(t, "haproxy", "make deps")
	pemFile := filepath.Join(t.TempDir(), "both.pem")
	certFile, keyFile := writePEM(t, &tls.Config{Certificates: []tls.Certificate{cert}})
	var both []byte
	for _, f := range []string{certFile, keyFile} {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, b...)
	}
	conf := filepath.Join(t.TempDir(), "haproxy.cfg")
	var addrs []string
	args := []any{}
	for range 6 {
		addrs = append(addrs, freePort(t))
	}
	port := func(i int) string {
		_, p, _ := net.SplitHostPort(addrs[i])
		return p
	}
	args = append(args, port(0), port(1), port(2), port(3), upstream, pemFile, port(4), port(5))
	for path, content := range map[string][]byte{pemFile: both, conf: fmt.Appendf(nil, haproxyConfig, args...)} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	daemonOf(t, addrs, "haproxy", "-db", "-f", conf)
	return addrs[0], addrs[1], addrs[2], addrs[3], addrs[4]
}

// exchange dials addr, sends what there is and returns all that comes, and the client's address.
func exchange(t *testing.T, addr string, send []byte, config *tls.Config) (answer, local string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	local = c.LocalAddr().String()
	if config != nil {
		c = tls.Client(c, config)
	}
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.Write(send); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("%s: %v after %q", addr, err, all)
	}
	return string(all), local
}

// TestHAProxySendsHeaders has HAProxy relay connections to our parser.
func TestHAProxySendsHeaders(t *testing.T) {
	cert, roots := testcert.SelfSigned("b")
	v1, v2, secure, _, status := haproxy(t, headerServer(t), cert)

	got, local := exchange(t, v1, []byte("x"), nil)
	if want := fmt.Sprintf("v1 local=false sum=false %s>%s\n", local, v1); got != want {
		t.Errorf("send-proxy: %q, want %q", got, want)
	}
	got, local = exchange(t, v2, []byte("x"), nil)
	_, port, _ := net.SplitHostPort(local)
	if want := fmt.Sprintf("v2 local=false sum=true %s>%s id=id-%s\n", local, v2, port); got != want {
		t.Errorf("send-proxy-v2: %q, want %q", got, want)
	}
	config := &tls.Config{RootCAs: roots, ServerName: "b", NextProtos: []string{"h2"}}
	got, local = exchange(t, secure, []byte("x"), config)
	for _, want := range []string{fmt.Sprintf("v2 local=false sum=true %s>%s", local, secure), "authority=b", "client=1 verify=0 version=TLSv1.3 cn= key=EC256"} {
		if !strings.Contains(got, want) {
			t.Errorf("send-proxy-v2-ssl-cn: %q, want %q", got, want)
		}
	}
	config.Certificates = []tls.Certificate{cert}
	if got, _ = exchange(t, secure, []byte("x"), config); !strings.Contains(got, "client=7 verify=0 version=TLSv1.3 cn=test") {
		t.Errorf("send-proxy-v2-ssl-cn with a certificate: %q", got)
	}
	// HAProxy's own check is a connection that it relays for nobody: LOCAL. It expects to read that we understood.
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if got, _ = exchange(t, status, []byte("GET / HTTP/1.0\r\n\r\n"), nil); strings.HasSuffix(got, "1") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the check with LOCAL fails: %q", got)
		}
	}
}

// sentHeaders are headers of ours, with the words by which receivers say what they read.
func sentHeaders(version uint8) map[string]proxyproto.Header {
	v4 := proxyproto.TCP(version, netip.MustParseAddrPort("198.18.0.9:1234"), netip.MustParseAddrPort("198.18.0.1:443"))
	v6 := proxyproto.TCP(version, netip.MustParseAddrPort("[2001:db8::9]:1234"), netip.MustParseAddrPort("[2001:db8::1]:443"))
	if version == 1 {
		return map[string]proxyproto.Header{"198.18.0.9 1234 198.18.0.1 443": v4, "2001:db8::9 1234 2001:db8::1 443": v6}
	}
	v6.Checksum = true
	named := v4
	named.Checksum = true
	named.TLVs, _ = named.TLVs.Append(proxyproto.TypeAuthority, []byte("www.example"))
	named.TLVs, _ = named.TLVs.Append(proxyproto.TypeNoop, []byte("padding"))
	named.TLVs, _ = named.TLVs.Append(proxyproto.TypeUniqueID, []byte("the-id"))
	return map[string]proxyproto.Header{
		"198.18.0.9 1234 198.18.0.1 443": v4, "2001:db8::9 1234 2001:db8::1 443": v6,
		"198.18.0.9 1234 198.18.0.1 443 www.example the-id": named,
	}
}

// TestHAProxyReadsHeaders sends ours to HAProxy. It refuses a wrong checksum, as we do.
func TestHAProxyReadsHeaders(t *testing.T) {
	cert, _ := testcert.SelfSigned("b")
	_, _, _, receiver, _ := haproxy(t, headerServer(t), cert)
	request := "GET / HTTP/1.0\r\n\r\n"
	for _, version := range []uint8{1, 2} {
		for want, h := range sentHeaders(version) {
			out, err := h.Append(nil)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := exchange(t, receiver, append(out, request...), nil)
			if _, body, _ := strings.Cut(got, "\r\n\r\n"); strings.TrimRight(body, " -") != want {
				t.Errorf("version %d: %q, want %q", version, body, want)
			}
		}
	}
	local := proxyproto.Header{Version: 2, Local: true}
	out, _ := local.Append(nil)
	if got, from := exchange(t, receiver, append(out, request...), nil); !strings.Contains(got, strings.Replace(from, ":", " ", 1)) {
		t.Errorf("LOCAL from %s: %q", from, got)
	}
}

const nginxHeaders = `
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off; master_process off; pid %[1]s/pid; error_log stderr;
events {}
stream {
	server { listen %[2]s; proxy_pass %[3]s; proxy_protocol on; }
}
http {
	access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	server {
		listen %[4]s proxy_protocol;
		return 200 "$proxy_protocol_addr $proxy_protocol_port $proxy_protocol_server_addr $proxy_protocol_server_port";
	}
}`

// TestNginxHeaders goes both ways: nginx sends version 1 only, and reads both.
func TestNginxHeaders(t *testing.T) {
	needs(t, "nginx", "make deps")
	if _, err := os.Stat("/usr/lib/nginx/modules/ngx_stream_module.so"); err != nil {
		t.Skipf("nginx has no stream module: make deps (%v)", err)
	}
	dir := t.TempDir()
	sender, receiver := freePort(t), freePort(t)
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxHeaders, dir, sender, headerServer(t), receiver), 0o600); err != nil {
		t.Fatal(err)
	}
	daemonOf(t, []string{sender, receiver}, "nginx", "-p", dir, "-c", conf)

	got, local := exchange(t, sender, []byte("x"), nil)
	if want := fmt.Sprintf("v1 local=false sum=false %s>%s\n", local, sender); got != want {
		t.Errorf("proxy_protocol on: %q, want %q", got, want)
	}
	for _, version := range []uint8{1, 2} {
		for want, h := range sentHeaders(version) {
			out, err := h.Append(nil)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := exchange(t, receiver, append(out, "GET / HTTP/1.0\r\n\r\n"...), nil)
			if _, body, _ := strings.Cut(got, "\r\n\r\n"); !strings.HasPrefix(want, body) || body == "" {
				t.Errorf("version %d: %q, want %q", version, body, want)
			}
		}
	}
}

// TestTsharkReadsHeaders dissects ours. It shows no TLV in the last 16 bytes of a header: there is the checksum, or its padding.
func TestTsharkReadsHeaders(t *testing.T) {
	needs(t, "tshark", "make deps")
	var segments [][]byte
	var want []string
	unix := proxyproto.Header{Version: 2, Family: proxyproto.Unix, Transport: proxyproto.Stream, UnixSource: []byte("/run/a")}
	named := sentHeaders(2)["198.18.0.9 1234 198.18.0.1 443 www.example the-id"]
	named.TLVs, _ = named.TLVs.AppendSSL(proxyproto.SSL{Client: 1, Verify: 1, TLVs: proxyproto.TLVs("\x21\x00\x07TLSv1.3")})
	v1, v2 := sentHeaders(1), sentHeaders(2)
	for _, c := range []struct {
		h    proxyproto.Header
		want string
	}{
		{v1["198.18.0.9 1234 198.18.0.1 443"], "198.18.0.9|198.18.0.1|||1234|443||"},
		{v1["2001:db8::9 1234 2001:db8::1 443"], "||2001:db8::9|2001:db8::1|1234|443||"},
		{v2["198.18.0.9 1234 198.18.0.1 443"], "198.18.0.9|198.18.0.1|||1234|443||"},
		{v2["2001:db8::9 1234 2001:db8::1 443"], "||2001:db8::9|2001:db8::1|1234|443||"},
		{named, "198.18.0.9|198.18.0.1|||1234|443|0x02,0x04,0x05,0x20,0x21|TLSv1.3"},
		{unix, "||||||||"},
	} {
		out, err := c.h.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		segments, want = append(segments, out), append(want, strings.TrimSuffix(c.want, "|"))
	}
	file := filepath.Join(t.TempDir(), "headers.pcap")
	writeSegments(t, file, segments)
	args := []string{"-n", "-r", file, "-T", "fields", "-E", "separator=|"}
	for _, f := range []string{
		"proxy.src.ipv4", "proxy.dst.ipv4", "proxy.src.ipv6", "proxy.dst.ipv6", "proxy.srcport", "proxy.dstport", "proxy.v2.tlv.type",
		"proxy.v2.tlv.ssl.version", "_ws.malformed", "proxy.bad_format",
	} {
		args = append(args, "-e", f)
	}
	out, err := exec.Command("tshark", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimRight(string(out), "\n"), "\n") {
		if i >= len(want) || strings.TrimRight(line, "|") != strings.TrimRight(want[i], "|") {
			t.Errorf("%d: %q, want %q", i, line, want)
		}
	}
}

// writeSegments writes each payload as the first segment of a TCP connection.
func writeSegments(t *testing.T, file string, payloads [][]byte) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := pcapgo.NewWriter(f)
	_ = w.WriteFileHeader(65535, layers.LinkTypeRaw)
	for i, p := range payloads {
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: net.IP{198, 18, 0, 3}, DstIP: net.IP{198, 18, 0, 4}}
		segment := &layers.TCP{SrcPort: layers.TCPPort(40000 + i), DstPort: 50000, Seq: 1, ACK: true, PSH: true, Window: 1000}
		_ = segment.SetNetworkLayerForChecksum(ip)
		b := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip, segment, gopacket.Payload(p)); err != nil {
			t.Fatal(err)
		}
		if err := w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(b.Bytes()), Length: len(b.Bytes())}, b.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzProxyHeader compares with another parser: what one accepts, the other accepts too, and reads the same of it, but for
// what isOpinion names.
func FuzzProxyHeader(f *testing.F) {
	for _, version := range []uint8{1, 2} {
		for _, h := range sentHeaders(version) {
			out, err := h.Append(nil)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(append(out, "data"...))
		}
	}
	f.Add([]byte("PROXY UNKNOWN\r\n"))
	f.Add([]byte("\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		h, n, err := proxyproto.Parse(in, 1<<17)
		r := bufio.NewReaderSize(bytes.NewReader(in), 1<<17)
		theirs, theirErr := pires.Read(r)
		switch {
		case n > 0 && theirErr != nil:
			if !onlyWeAccept(h, in) {
				t.Fatalf("accepted as %s, refused there: %v\n%q", describeHeader(h), theirErr, in)
			}
		case n == 0 && theirErr == nil:
			if !onlyTheyAccept(theirs, in) {
				t.Fatalf("refused with %v, accepted there as %+v\n%q", err, theirs, in)
			}
		case n > 0:
			if left := r.Buffered(); left != len(in)-n {
				t.Fatalf("%d bytes of %d, there %d\n%q", n, len(in), len(in)-left, in)
			}
			compareHeader(t, h, theirs, in)
		}
	})
}

// onlyWeAccept knows what the other parser refuses and the specification permits.
func onlyWeAccept(h proxyproto.Header, in []byte) bool {
	return h.Version == 1 && !h.Relays() || // anything after UNKNOWN
		h.Local || // of any family
		h.Version == 2 && h.Transport == proxyproto.Unknown || h.Version == 2 && h.Family == proxyproto.Unspecified ||
		bytes.Contains(in, []byte("PROXY TCP6")) // IPv4 in IPv6
}

// onlyTheyAccept knows what the other parser does not look at: the TLVs and their checksum.
func onlyTheyAccept(theirs *pires.Header, in []byte) bool {
	if theirs.Version == 1 {
		return bytes.HasPrefix(in, []byte("PROXY UNKNOWN")) // a CR or LF inside, or more than 107 bytes
	}
	tlvs, err := theirs.TLVs()
	return err != nil || slices.ContainsFunc(tlvs, func(v pires.TLV) bool {
		return v.Type == pires.PP2_TYPE_CRC32C || v.Type == pires.PP2_TYPE_UNIQUE_ID || v.Type == pires.PP2_TYPE_SSL
	})
}

func compareHeader(t *testing.T, h proxyproto.Header, theirs *pires.Header, in []byte) {
	if h.Version != theirs.Version || h.Version == 2 && h.Local != theirs.Command.IsLocal() { // version 1 has none
		t.Fatalf("%s, there %+v\n%q", describeHeader(h), theirs, in)
	}
	if !h.Relays() {
		return
	}
	if source := addrPort(theirs.SourceAddr); source != unmapped(h.Source) {
		t.Fatalf("source %v, there %v\n%q", h.Source, source, in)
	}
	if destination := addrPort(theirs.DestinationAddr); destination != unmapped(h.Destination) {
		t.Fatalf("destination %v, there %v\n%q", h.Destination, destination, in)
	}
}

func addrPort(a net.Addr) netip.AddrPort {
	switch a := a.(type) {
	case *net.TCPAddr:
		return unmapped(a.AddrPort())
	case *net.UDPAddr:
		return unmapped(a.AddrPort())
	}
	return netip.AddrPort{}
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
