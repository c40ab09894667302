package interop

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/script"
)

// TestPacketdrillSuite runs the scripts that come with packetdrill (gtests/net/tcp of its repository; `make packetdrill`
// fetches them), and those of Linux (tools/testing/selftests/net/packetdrill) where the folder has them in linux/. They
// were written for Linux: unsupported names those that cannot pass here, with the reason, and one of them that passes is
// a failure too.
func TestPacketdrillSuite(t *testing.T) {
	dir := os.Getenv("MILLRACE_PACKETDRILL")
	if dir == "" {
		t.Skip("MILLRACE_PACKETDRILL names no folder of scripts; make packetdrill fetches them")
	}
	ran := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".pkt" {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		ran++
		t.Run(strings.TrimSuffix(rel, ".pkt"), func(t *testing.T) { runPacketdrill(t, path, reasonFor(rel)) })
		return nil
	})
	if err != nil || ran < 100 {
		t.Fatalf("%d scripts in %s: %v", ran, dir, err)
	}
}

// runPacketdrill runs one script, which must fail if there is a reason for that.
func runPacketdrill(t *testing.T, path, reason string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	s, err := script.Parse(filepath.Base(path), translate(string(text)))
	if err == nil {
		err = s.Run(&log)
	}
	switch {
	case err == nil && reason != "":
		t.Errorf("it passes, and is listed as one that cannot: %s", reason)
	case err != nil && reason == "":
		t.Errorf("%v\n%s", err, log.String())
	case err != nil:
		t.Skipf("%s (%v)", reason, err)
	}
}

var (
	commandAlone = regexp.MustCompile("(?m)^[ \t]*`([^`]*)`")
	commandTimed = regexp.MustCompile("(?m)^([ \t]*[+0-9.*~]+[ \t]*)`([^`]*)`")
	machine      = regexp.MustCompile(`(?m)^--(local_ip|remote_ip|tcp_ts_ecr_scaled|strict_segments|mss)\b.*$`)
	code         = regexp.MustCompile(`(?s)%\{.*?\}%`)
	notAsserted  = regexp.MustCompile(`(?m)#.*$|\bprint\b[^;\n}]*;?|^[ \t%{]*[A-Z_]+ = .*$|\\$`)
	assignment   = regexp.MustCompile(`net[./]ipv4[./]([a-z0-9_]+)="?([^\s"\\]+)`)
)

// sysctls are those that package script knows; the others tune what is not compared.
var sysctls = map[string]bool{
	"tcp_congestion_control": true, "tcp_timestamps": true, "tcp_sack": true, "tcp_window_scaling": true, "tcp_ecn": true,
	"tcp_mtu_probing": true, "tcp_fastopen": true, "tcp_ecn_option": true,
}

// linuxCookie is the Fast Open cookie that Linux derives from the key and addresses of the suite.
const linuxCookie = "3021b9d889017eeb"

// translate has a script of packetdrill say what package script understands: commands that set up a Linux machine
// become the sysctls among them. A line is added in front.
func translate(text string) string {
	text = machine.ReplaceAllString(text, "")
	text = code.ReplaceAllStringFunc(text, func(s string) string {
		body := notAsserted.ReplaceAllString(strings.TrimSuffix(strings.TrimPrefix(s, "%{"), "}%"), "")
		if !strings.Contains(body, "assert") {
			body = "assert 1" + body
		}
		return "%{" + body + "}%"
	})
	text = strings.NewReplacer("TFO_COOKIE", "last", linuxCookie, "last", "FOEXP", "opt 254 f989").Replace(text)
	text = commandTimed.ReplaceAllStringFunc(text, func(s string) string {
		m := commandTimed.FindStringSubmatch(s)
		return m[1] + "`sysctl" + settings(m[2]) + "`" + lines(m[2])
	})
	text = commandAlone.ReplaceAllStringFunc(text, func(s string) string {
		m := commandAlone.FindStringSubmatch(s)
		if set := settings(m[1]); set != "" {
			return "+0 `sysctl" + set + "`" + lines(m[1])
		}
		return lines(m[1])
	})
	return "--upstream=1\n" + text
}

// settings are the sysctls that a command sets, as arguments of sysctl(8).
func settings(command string) (args string) {
	if strings.Contains(command, "defaults.sh") {
		args = " net.ipv4.tcp_congestion_control=cubic net.ipv4.tcp_ecn=0 net.ipv4.tcp_fastopen=0x70403"
	}
	for _, m := range assignment.FindAllStringSubmatch(command, -1) {
		if sysctls[m[1]] {
			args += " net.ipv4." + m[1] + "=" + m[2]
		}
	}
	return args
}

// lines keeps the numbers of the lines after a command.
func lines(command string) string { return strings.Repeat("\n", strings.Count(command, "\n")) }

// reasonFor says why a script cannot pass; "" where it must.
func reasonFor(name string) string {
	for _, u := range unsupported {
		if strings.HasPrefix(name, u.prefix) {
			return u.reason
		}
	}
	return ""
}

// unsupported are the scripts that cannot pass, by the beginning of their paths.
var unsupported = []struct{ prefix, reason string }{
	{"zerocopy/", "MSG_ZEROCOPY, which has no counterpart: sending lends memory by other calls"},
	{"splice/", "splice(2)"},
	{"sendfile/", "sendfile(2)"},
	{"syscall_bad_arg/", "pointers that are no memory"},
	{"timestamping/", "the timestamps of package socket, not of tcp"},
	{"inq/", "the control messages of package socket, not of tcp"},
	{"epoll/", "the Poller of package socket, which is compared with the kernel's there"},
	{"fastopen/client/nonblocking-connect-bypass.pkt", "epoll"},
	{"md5/", "keys that Linux takes by a setsockopt with addresses"},
	{"nagle/sendmsg_msg_more", "sendmsg(2)"},
	{"fastopen/client/blocking-sendmsg", "sendmsg(2)"},
	{"fastopen/client/nonblocking-sendmsg", "sendmsg(2)"},
	{"notsent_lowat/", "sysctl, and that Linux doubles buffer sizes"},
	{"blocking/blocking-write", "Linux doubles buffer sizes"},
	{"tcp_info/tcp-info-sndbuf-limited", "Linux doubles buffer sizes"},
	{"tcp_info/tcp-info-last_data_recv", "Linux counts from the connection's begin while there was no data"},
	{"mtu_probe/", "ip route with advmss"},
	{"gro/", "GRO of a device, which joins what is one segment here"},

	// Fast Open.
	{"fastopen/server/opt34/simple", "a clock of its own rate"},
	{"fastopen/server/opt34/pure-syn-data", "data in a SYN of a listener without Fast Open is left to the peer to send again"},
	{"fastopen/server/pure-syn-data", "data in a SYN of a listener without Fast Open is left to the peer to send again"},
	{"fastopen/server/opt34/basic-zero-payload", "FastOpen says that the cookie was taken, with data or without"},
	{"fastopen/server/opt34/basic-cookie-not-reqd", "a server without cookies (RFC 7413 5.1 asks for them)"},
	{"fastopen/server/basic-cookie-not-reqd", "a server without cookies (RFC 7413 5.1 asks for them)"},
	{"fastopen/server/client-ack-dropped", "a window of the handshake in milliseconds of Linux"},
	{"fastopen/server/opt34/icmp-before-accept", "an ICMP error ends no connection whose handshake was answered (RFC 5927 5.2)"},
	{"fastopen/server/opt34/", ""},
	{"fastopen/server/", "option 254 of RFC 6994, which 34 has replaced (RFC 7413 4.1.1)"},
	{"fastopen/client/fallback-exp-opt", "option 254 of RFC 6994, which 34 has replaced (RFC 7413 4.1.1)"},
	{"fastopen/client/cookie-less", "a client without cookies"},
	{"fastopen/client/sendto-af-unspec", "errors of arguments"},
	{"fastopen/client/nonblocking-connect-bypass-errno", "errors of arguments"},
	{"fastopen/client/nonblocking-sendto-errnos", "errors of arguments"},
	{"fastopen/client/blocking-sendto-errnos", "Linux leaves room for 40 bytes of options in a SYN with data, Millrace for those that it has"},
	{"fastopen/client/blocking-connect-bypass", "Linux leaves room for 40 bytes of options in a SYN with data, Millrace for those that it has"},
	{"fastopen/client/nonblocking-sendto", "sendto takes what the send buffer has room for, not only what the SYN has"},
	{"fastopen/client/poll", "sendto takes what the send buffer has room for, not only what the SYN has"},
	{"fastopen/client/valid-cookie-format", "sendto takes what the send buffer has room for, not only what the SYN has"},
	{"fastopen/client/syn-data-icmp", "sendto takes what the send buffer has room for, not only what the SYN has"},
	{"fastopen/client/syn-data-partial", "sendto takes what the send buffer has room for, not only what the SYN has"},
	{"fastopen/client/syn-data-mss", "the cache of Linux's routes"},
	{"fastopen/client/syn-data-rtt", "two connections at a time"},
	{"fastopen/client/syn-data-timeout", "tcpi_delivered, which counts packets"},
	{"fastopen/client/syn-data-only-syn-acked", "tcpi_delivered, which counts packets"},
	{"fastopen/client/blocking-sendto.pkt", "tcpi_delivered, which counts packets"},
	{"fastopen/client/simultaneous", "a D-SACK of the SYN's number"},
	{"fastopen/client/cookie-req-timeout", "after one SYN that was lost with the option Millrace pauses, Linux after two (RFC 7413 4.1.3 leaves that open)"},
	{"fastopen/client/synack-data", "after one SYN that was lost with the option Millrace pauses, Linux after two (RFC 7413 4.1.3 leaves that open)"},

	// Accurate ECN.
	{"linux/tcp_accecn_3rd_ack_after_synack_rxmt", "the ACK of a SYN-ACK that confirms nothing has the counter (RFC 9768 3.2.2.1)"},
	{"linux/tcp_accecn_no_ecn_after_accecn", "the ACK of a SYN-ACK that confirms nothing has the counter (RFC 9768 3.2.2.1)"},
	{"linux/tcp_accecn_3rd_dups", "no options after a SYN-ACK that was sent again without (RFC 9768 3.2.3.2.2 allows more)"},
	{"linux/tcp_accecn_client_accecn_options_drop", "data to the left of the window is not acceptable, so that it is not counted (RFC 9768 3.2)"},
	{"linux/tcp_accecn_client_accecn_options_lost", "Linux has an option on each segment of data, which makes them shorter"},
	{"linux/tcp_accecn_close_local_close_then_remote_fin", "the ACK in TIME-WAIT has the counter (RFC 9768 3.2.2), Linux's has 0"},
	{"linux/tcp_accecn_ecn3", "a host that asks for RFC 3168 and agrees to RFC 9768"},
	{"linux/tcp_accecn_multiple_syn_drop", "Linux sends its first SYNs again after one second each"},
	{"linux/tcp_accecn_syn_ace_flags_drop", "Linux sends its first SYNs again after one second each"},
	{"linux/tcp_accecn_syn_ace_flags_acked_after_retransmit", "Linux sends its first SYNs again after one second each"},
	{"linux/tcp_accecn_negotiation_noopt_connect", "the client sends options though the SYN-ACK had none (RFC 9768 3.2.3.2.3)"},
	{"linux/tcp_accecn_negotiation_optenable", "the client sends options though the SYN-ACK had none (RFC 9768 3.2.3.2.3)"},
	{"linux/tcp_accecn_serverside_accecn_disabled1", "the client sends options though the SYN-ACK had none (RFC 9768 3.2.3.2.3)"},
	{"linux/tcp_accecn_sack_space_grab_with_ts", "two SACK blocks and a counter that has changed, where Linux has three blocks and none"},
	{"linux/tcp_accecn_synack_ce_updates_delivered_ce", "tcp_ecn_fallback=0: no test of the path (RFC 9768 3.2.2.3)"},

	// Choices that RFCs leave open, or that Linux makes otherwise.
	{"shutdown/shutdown-rd-wr-close", "data after SHUT_RD is discarded, Linux keeps it"},
	{"slow_start/slow-start-after-win-update", "a window probe has a byte of data (RFC 9293 3.8.6.1), Linux's has none"},
	{"slow_start/slow-start-fq", "the bursts of Linux's pacing"},
	{"ts_recent/invalid_ack", "an ACK of what was not sent is answered (RFC 9293 3.10.7.4), Linux is silent"},
	{"user_timeout/user_timeout", "the peer is sent a reset when the user timeout ends a connection, Linux is silent"},
	{"user_timeout/user-timeout-probe", "a device that refuses packets, whose retries count as probes"},
	{"cubic/cubic-rto-ss-ca-cwnd-bump", "ssthresh follows the flight (RFC 9438 4.6), Linux's the window"},
	{"cwnd_moderation/cwnd-moderation-ecn", "ssthresh follows the flight (RFC 9438 4.6), Linux's the window"},
	{"cubic/cubic-bulk-166k-idle", "the window that Linux keeps over an idle time"},
	{"cubic/cubic-bulk-166k", "a variable of Python"},
	{"cubic/cubic-hystart-delay-rtt", "when the first round of HyStart++ ends (RFC 9406 4.2; Linux has HyStart)"},
	{"cubic/cubic-rack-reo-timeout", "tcpi_reordering in Linux's measure"},
	{"sack/sack-shift", "tcpi_lost, which has what was sent again too"},
	{"eor/no-coalesce-retrans", "PRR by bytes (RFC 9937), where Linux counts packets of any size"},
	{"fast_recovery/prr-ss-ack-below", "the ACK of a retransmission shows the segment sent before it lost (RFC 8985 6.2), so that PRR adds none"},
	{"fast_retransmit/fr-4pkt-fack-last-mss", "Linux's timers are no shorter than two of its ticks"},
}
