package script

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// listening is how most scripts begin.
const listening = `0    socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0   bind(3, ..., ...) = 0
+0   listen(3, 1) = 0
+0   < S 0:0(0) win 32792 <mss 1000>
+0   > S. 0:0(0) ack 1 <mss 1460>
+0.1 < . 1:1(0) ack 1 win 32792
+0   accept(3, ..., ...) = 4
`

// TestTheRunnerFindsWhatIsWrong runs scripts that expect something else than what happens.
func TestTheRunnerFindsWhatIsWrong(t *testing.T) {
	const write = listening + "+0 write(4, ..., 100) = 100\n"
	for text, want := range map[string]string{
		listening:                                                                                "",
		write + "+0 > P. 1:101(100) ack 1":                                                       "",
		write + "* > P. 1:101(100) ack 1":                                                        "",
		write:                                                                                    "which nobody expects",
		write + "+0 > . 1:101(100) ack 1":                                                        "flags are P., not .",
		write + "+0 > PA. 1:101(100) ack 1":                                                      "flags are P., not P.A",
		write + "+0 > P. 2:102(100) ack 1":                                                       "sequence number is 1, not 2",
		write + "+0 > P. 1:102(101) ack 1":                                                       "payload is 100 bytes, not 101",
		write + "+0 > P. 1:101(100) ack 2":                                                       "ack is 1, not 2",
		write + "+0 > P. 1:101(100) ack 1 win 7":                                                 "win is",
		write + "+0 > P. 1:101(100) ack 1 urg 7":                                                 "urg is 0, not 7",
		write + "+0 > [ect0] P. 1:101(100) ack 1":                                                "ECN is",
		write + "+0 > P. 1:101(100) ack 1 <nop,nop,TS val 1 ecr 2>":                              "options are <>",
		write + "+0.1 > P. 1:101(100) ack 1":                                                     "sent at 0.100000, not at 0.200000",
		write + "+0.01~+0.1 > P. 1:101(100) ack 1":                                               "sent at",
		write + "+0 > P. 1:101(100) ack 1\n+0 > P. 101:201(100) ack 1":                           "nothing was sent",
		write + "+0 > P. 1:101(100) ack 1\n+2 read(4, ..., 1) = 0":                               "blocks",
		listening + "+0 read(4, ..., 10) = 10":                                                   "read blocks",
		listening + "+0...0.5 read(4, ..., 10) = 10":                                             "read still blocks",
		listening + "+0...0.5 write(4, ..., 10) = 10\n+0 > P. 1:11(10) ack 1":                    "write does not block",
		listening + "+0 write(4, ..., 100) = 99\n":                                               "write returns 100",
		listening + "+0 close(4) = -1 EBADF\n":                                                   "close returns 0",
		listening + "+0 read(9, ..., 100) = 1\n":                                                 "no descriptor 9",
		listening + "+0 splice(4, ..., 100) = 1\n":                                               "unknown call splice",
		listening + "+0 setsockopt(4, SOL_TCP, TCP_MAGIC, [1], 4) = 0\n":                         "unknown option",
		listening + "+0 `sysctl -q net.ipv4.tcp_magic=1`\n":                                      "unknown sysctl",
		listening + "+0 `rm -rf /`\n":                                                            "unknown command",
		listening + "+0 %{ assert tcpi_state == TCP_CLOSE }%\n":                                  "it is not true that tcpi_state == TCP_CLOSE; tcpi_state is 1",
		listening + "+0 %{ assert tcpi_state }%\n":                                               "",
		listening + "+0 %{ assert not tcpi_state }%\n":                                           "it is not true",
		listening + "+0 %{ assert tcpi_magic == 1 }%\n":                                          "tcpi_magic is not known",
		listening + "+0 %{ assert 1 / 0 == 1 }%\n":                                               "division by zero",
		listening + "+0 %{ assert 2 + 3 * 4 == 14 and (2 + 3) * 4 == 20 and 7 - 2 - 1 == 4 }%\n": "",
		listening + "+0 %{ assert 1 == 1\nassert 1 > 2, 'text'; assert 1 == 1 }%\n":              "it is not true that 1 > 2",
		listening + "0.05 < . 1:2(1) ack 1 win 100\n":                                            "too late",
		listening + "+0 < P. 1:11(10) ack 1 win 100\n+0 > . 1:1(0) ack 11\n+0 poll([{fd=4, events=POLLIN, revents=POLLOUT}], 1, 0) = 1\n": "revents 0x1",
		listening + "+0 < P. 1:11(10) ack 1 win 100\n+0 > . 1:1(0) ack 11\n+0 ioctl(4, SIOCINQ, [11]) = 0\n":                              "the value is 10",
		"0 > S 0:0(0)": "nothing was sent",
		"0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0...1 connect(3, ..., ...) = 0\n+0 > S 0:0(0) <...>\n": "connect still blocks",
	} {
		s, err := Parse("test", text)
		if err != nil {
			t.Errorf("%s\n%v", text, err)
			continue
		}
		err = s.Run(nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s\n%v; want %q", text, err, want)
		}
	}
}

// stamped is a connection with timestamps.
const stamped = `0    socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0   bind(3, ..., ...) = 0
+0   listen(3, 1) = 0
+0   < S 0:0(0) win 32792 <mss 1000,nop,nop,TS val 10 ecr 0>
+0   > S. 0:0(0) ack 1 <mss 1460,nop,nop,TS val 100 ecr 10>
+0.1 < . 1:1(0) ack 1 win 32792 <nop,nop,TS val 110 ecr 100>
+0   accept(3, ..., ...) = 4
+0   write(4, ..., 10) = 10
`

// TestTheRunnerComparesWhatTimeTells has timestamps, errors and bytes that are wrong.
func TestTheRunnerComparesWhatTimeTells(t *testing.T) {
	const want = "options are <TS val 200 ecr 110>"
	for text, want := range map[string]string{
		stamped + "+0 > P. 1:11(10) ack 1 <nop,nop,TS val 200 ecr 110>":                                                                 "",
		stamped + "+0 > P. 1:11(10) ack 1 <nop,nop,TS val 250 ecr 110>":                                                                 want,
		stamped + "+0 > P. 1:11(10) ack 1 <nop,nop,TS val 150 ecr 110>":                                                                 want,
		stamped + "+0 > P. 1:11(10) ack 1 <nop,nop,TS val 200 ecr 111>":                                                                 want,
		listening + "+0 < R. 1:1(0) ack 1 win 0\n+0 read(4, ..., 10) = -1 EPIPE":                                                        "read returns -1 ECONNRESET, not -1 EPIPE",
		listening + "+0 < S 5:5(0) win 9\n+0 > . 1:1(0) ack 1\n+0 < P. 1:5(4) ack 1 win 9\n+0 > . 1:1(0) ack 5\n+0 read(4, ..., 9) = 4": "EWRONG",
	} {
		s, err := Parse("test", text)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Run(nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s\n%v; want %q", text, err, want)
		}
	}
}

// accurate is a connection with accurate ECN, in an upstream script, that has received data.
const accurate = `--upstream=1
0    ` + "`sysctl -q net.ipv4.tcp_ecn=3`" + `
+0   socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0   bind(3, ..., ...) = 0
+0   listen(3, 1) = 0
+0   < SEWA 0:0(0) win 32792 <mss 1000,sackOK>
+0   > SW. 0:0(0) ack 1 <mss 1460,sackOK,ECN e1b 1 ceb 0 e0b 1,nop>
+0.1 < [ect0] .2 1:1(0) ack 1 win 32792
+0   accept(3, ..., ...) = 4
+0   < [ce] P5. 1:101(100) ack 1 win 32792
`

// TestUpstreamScriptsCompareCounters has options of accurate ECN in another form than they are sent in, which pass, and
// others.
func TestUpstreamScriptsCompareCounters(t *testing.T) {
	const acked = accurate + "+0 > [ect0] .6 1:1(0) ack 101 <ECN e1b 1 ceb 100 e0b 1,nop>\n"
	const write = "+0 write(4, ..., 1000) = 1000\n"
	const without = "+0 `sysctl -q net.ipv4.tcp_ecn_option=0`\n"
	const listens = "--upstream=1\n0 `sysctl -q net.ipv4.tcp_ecn=3`\n+0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0 bind(3, ..., ...) = 0\n+0 listen(3, 1) = 0\n"
	for text, want := range map[string]string{
		acked: "",
		listens + "+0 < [ect0] S7 0:0(0) win 9 <mss 1000>\n+0 > S4. 0:0(0) ack 1 <mss 1460,ECN e0b 1>": "",
		listens + "+0 < [ect0] S7 0:0(0) win 9 <mss 1000>\n+0 > S4. 0:0(0) ack 1 <mss 1460,ECN>":       "",
		listens + "+0 < [ect0] S7 0:0(0) win 9 <mss 1000>\n+0 > S3. 0:0(0) ack 1 <mss 1460,ECN>":       "flags are S.A, not S.EW",
		listens + "+0 < [ect0] S3 0:0(0) win 9 <mss 1000>\n+0 > S1. 0:0(0) ack 1 <mss 1460>":           "",
		accurate + "+0 > .6 1:1(0) ack 101 <ECN e0b 1 ceb 100>":                                        "",
		accurate + "+0 > .6 1:1(0) ack 101 <ECN e0b 1 ceb 99>":                                         "counters e0b, ceb, e1b of [1 100 1], not [1 99 1]",
		accurate + "+0 > .6 1:1(0) ack 101 <ECN e0b 2 ceb 100>":                                        "counters e0b, ceb, e1b of [1 100 1], not [2 100 1]",
		accurate + "+0 > .6 1:1(0) ack 101 <ECN e1b 2 ceb 100>":                                        "counters e0b, ceb, e1b of [1 100 1], not [1 100 2]",
		accurate + "+0 > .6 1:1(0) ack 101":                                                            "where none of accurate ECN is expected",
		accurate + without + "+0 > .6 1:1(0) ack 101":                                                  "",
		accurate + without + "+0 > .6 1:1(0) ack 101 <sack 1:2>":                                       "options are",
		accurate + "+0 > .5 1:1(0) ack 101 <ECN e0b 1 ceb 100>":                                        "flags are .WA, not .EA",
		acked + write + "+0 > [ect0] P.6 1:1001(1000) ack 101":                                         "",
		acked + write + "+0 > P.6 1:1001(1000) ack 101 <ECN e1b 1>":                                    "",
		acked + write + "+0 > P.6 1:1001(1000) ack 101 <ECN e1b 5>":                                    "counters",
		acked + write + "+0 > [ect1] P.6 1:1001(1000) ack 101":                                         "ECN is",
		acked + write + "+0 > [noecn] P.6 1:1001(1000) ack 101":                                        "ECN is",
		acked + write + "+0 > P.6 1:1001(1000) ack 101\n* > [ect0] P.6 1:1001(1000) ack 101":           "",
		acked + write + "+0 > P.6 1:1001(1000) ack 101\n* > [ect1] P.6 1:1001(1000) ack 101":           "ECN is",
	} {
		s, err := Parse("test", text)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Run(nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s\n%v; want %q", text, err, want)
		}
	}
}

// TestUpstreamTimestampsAreComparedByTicks has a local timestamp that no clock gives.
func TestUpstreamTimestampsAreComparedByTicks(t *testing.T) {
	const late = stamped + "+0 > P. 1:11(10) ack 1 <nop,nop,TS val 250 ecr 110>\n+0.1 < . 1:1(0) ack 11 win 32792 <nop,nop,TS val 120 ecr 250>"
	for head, want := range map[string]string{"--upstream=1\n": "", "--upstream=1\n--tcp_ts_tick_usecs=1000\n": "options are"} {
		s, err := Parse("test", head+late)
		if err != nil {
			t.Fatal(err)
		}
		if err = s.Run(nil); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s%v; want %q", head, err, want)
		}
	}
}

// TestMistakesHaveAPlace has scripts that cannot be read, and where the error must point.
func TestMistakesHaveAPlace(t *testing.T) {
	for text, want := range map[string]string{
		"0 listen(3, 1)":                        `test:1:15: want "=", have the end`,
		"0 listen(3 1) = 0":                     `test:1:12: want ")", have "1"`,
		"0 < S 0:0(0)":                          "test:1:13: a segment that arrives has a window",
		"0 < S 0:0(1) win 5":                    "test:1:7: from 0 to 0 are not 1 bytes",
		"0 < S 0:2(1) win 5":                    "test:1:7: from 0 to 2 are not 1 bytes",
		"0 < . 0:0(0) win 5":                    "test:1:14: a segment with ACK names what it acknowledges",
		"0 > X 0:0(0)":                          `test:1:5: 'X' is no flag`,
		"0 < S 0:0(0) win 65536":                "test:1:18: 65536 is more than 65535",
		"0 < S 0:0(0) win 5 <mss 5,what 3>":     `test:1:27: unknown TCP option "what"`,
		"0 < S 0:0(0) win 5 <...>":              "test:1:24: options that arrive must be known",
		"0 < S 0:0(0) win 5 <sack>":             "test:1:21: sack without blocks",
		"0 < S 0:0(0) win 5 <FO 012>":           `test:1:24: "012" are no bytes in hexadecimal`,
		"\n\n  +0.1 frob":                       `test:3:12: want "(", have the end`,
		"0 < S 0:0(0) win 5 0 < S 0:0(0) win 5": `test:1:20: want the end of the line, have "0"`,
		"0...1 > S 0:0(0)":                      "test:1:1: only calls block",
		"* < S 0:0(0) win 5":                    "test:1:1: only what is expected may come at any time",
		"0~1 < S 0:0(0) win 5":                  "test:1:1: only what is expected may come at any time",
		"2~1 > S 0:0(0)":                        "test:1:5: the range ends before it begins",
		"0~+1 > S 0:0(0)":                       "test:1:4: both ends of a range are absolute, or neither",
		"what > S 0:0(0)":                       `test:1:1: want a time in seconds, have "what"`,
		"0 %{ assert 1 = 1 }%":                  `test:1:15: "=" is no comparison`,
		"0 %{ 1 == 1 }%":                        `test:1:6: want "assert", have "1"`,
		"0 %{ }%":                               "test:1:3: nothing is asserted",
		"0 %{ assert 1":                         `test:1:3: "%{" without end`,
		"0 `sysctl":                             "test:1:3: \"`\" without end",
		"/* no end":                             "test:1:1: comment without end",
		"--what=5":                              "test:1:1: unknown option --what",
		"0 close(3) = 0\n--mtu=1500":            "test:2:1: options come before the first event",
		"0 < icmp unreachable magic [0:0(0)]":   "test:1:22: unknown kind of unreachable",
		"0 < S 0:0(0) win 5 <opt 5 " + strings.Repeat("00", 39) + ">": "test:1:27: 39 bytes do not fit into an option",
	} {
		_, err := Parse("test", text)
		var e *Error
		if !errors.As(err, &e) || err.Error() != want {
			t.Errorf("%s\n%v\nwant %s", text, err, want)
		}
	}
}

// FuzzParse feeds the parser with anything, and runs what it can read: it ends, in whatever way.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.pkt")
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("--tolerance_usecs=100\n--ip_version=ipv6\n0 %{ assert (1 + 2) * 3 == 9 }%")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		s, err := Parse("fuzz", text)
		if (err == nil) != (s != nil) {
			t.Fatal("a script and an error")
		}
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Pos.Line < 1 || e.Pos.Column < 1 {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		if len(s.Events) < 40 {
			_ = s.Run(nil)
		}
	})
}
