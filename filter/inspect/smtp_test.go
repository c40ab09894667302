package inspect

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"mime/multipart"
	"mime/quotedprintable"
	"net/textproto"
	"strings"
	"testing"

	"github.com/millrace/millrace/wire"
)

// attachment is a part of a message.
type attachment struct{ name, coding, text string }

// mailOf writes a message with parts, by the standard library.
func mailOf(t *testing.T, parts ...attachment) string {
	t.Helper()
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	for _, a := range parts {
		h := textproto.MIMEHeader{"Content-Type": {"application/octet-stream"}, "Content-Transfer-Encoding": {a.coding}}
		if a.name != "" {
			h.Set("Content-Disposition", fmt.Sprintf("attachment;\r\n filename=%q", a.name))
		}
		p, err := w.CreatePart(h)
		if err != nil {
			t.Fatal(err)
		}
		switch a.coding {
		case "base64":
			for text := base64.StdEncoding.EncodeToString([]byte(a.text)); len(text) > 0; {
				n := min(len(text), 76)
				fmt.Fprintf(p, "%s\r\n", text[:n])
				text = text[n:]
			}
		case "quoted-printable":
			q := quotedprintable.NewWriter(p)
			q.Write([]byte(a.text))
			q.Close()
		default:
			p.Write([]byte(a.text))
		}
	}
	w.Close()
	return "From: a\r\nSubject: s\r\nContent-Type: multipart/mixed;\r\n boundary=\"" + w.Boundary() + "\"\r\n\r\npreamble\r\n" + out.String()
}

// Files of mail are decoded, however they are sent and cut.
func TestFilesOfMail(t *testing.T) {
	text := strings.Repeat("some text = with an equals sign and \xc3\xa9, ", 20) + "evil" + strings.Repeat(" and more", 90)
	rules := `alert smtp any any -> any any (file.data; content:"evil"; sid:1;)
alert smtp any any -> any any (file.name; content:"evil.exe"; startswith; endswith; sid:2;)
alert tcp any any -> any any (file_data; content:"harmless"; startswith; file.name; content:"fine.txt"; sid:3;)
alert smtp any any -> any any (smtp.helo; content:"client.test"; startswith; endswith; sid:4;)
alert smtp any any -> any any (smtp.mail_from; content:"a@test"; startswith; endswith; sid:5;)
alert smtp any any -> any any (smtp.rcpt_to; content:"b@test"; startswith; endswith; sid:6;)
alert smtp any any -> any any (smtp.rcpt_to; content:"after"; sid:7;)`
	for _, coding := range []string{"base64", "quoted-printable", "8bit"} {
		message := mailOf(t, attachment{"fine.txt", "base64", "harmless"}, attachment{"evil.exe", coding, text})
		stuffed := strings.ReplaceAll("\r\n"+message, "\r\n.", "\r\n..")[2:]
		for _, chunks := range []bool{false, true} {
			for _, mss := range []int{1, 13, 1400} {
				l := newLab(t, rules)
				c := l.tcp(25).open().send(false, "220 mail\r\n", mss).send(true, "EHLO client.test\r\n", mss).send(false, "250 mail\r\n", mss)
				c.send(true, "MAIL FROM: <a@test> SIZE=9\r\nRCPT TO:<b@test>\r\n", mss).send(false, "250 a\r\n250 b\r\n", mss)
				if chunks {
					half := len(message) / 2
					c.send(true, fmt.Sprintf("BDAT %d\r\n%sBDAT %d LAST\r\n%s", half, message[:half], len(message)-half, message[half:]), mss)
				} else {
					c.send(true, "DATA\r\n", mss).send(false, "354 go on\r\n", mss).send(true, stuffed+"\r\n.\r\n", mss)
				}
				c.send(true, "RCPT TO:<after@test>\r\n", mss)
				l.want(fmt.Sprintf("%s, chunks %v, segments of %d", coding, chunks, mss), "1 2 3 4 5 6 7")
			}
		}
	}
}

// What a server may take for the end of a message, or not, hides nothing of what follows.
func TestEndsOfMail(t *testing.T) {
	const evil = "Subject: x\r\n\r\nevil\r\n"
	for name, text := range map[string]string{
		"one message":            "DATA\r\n" + evil + ".\r\n",
		"a dot with a line feed": "DATA\r\nSubject: a\r\n\r\nb\n.\nDATA\n" + evil + ".\r\n",
		"a dot behind one":       "DATA\r\nSubject: a\r\n\r\nb\n.\r\nDATA\r\n" + evil + ".\r\n",
		"text behind a dot":      "DATA\r\nSubject: a\r\n\r\nb\n.\r\nevil\r\n.\r\n",
		"stuffed":                "DATA\r\nSubject: a\r\n\r\nb\r\n..evil\r\n.\r\n",
		"a boundary that is over": "DATA\r\nContent-Type: multipart/mixed; boundary=o\r\n\r\n--o\r\nContent-Type: multipart/mixed; boundary=i\r\n\r\n" +
			"--i\r\n\r\nfine\r\n--i--\r\n--o\r\n\r\n--i\r\nevil\r\n--o--\r\n.\r\n",
		"a message in one, said to be encoded": "DATA\r\nContent-Type: message/rfc822\r\nContent-Transfer-Encoding: base64\r\n\r\nSubject: i\r\n\r\nevil\r\n.\r\n",
		"an encoded text of a message in one":  "DATA\r\nContent-Type: Message/RFC822; x=y\r\n\r\nContent-Transfer-Encoding: base64\r\n\r\nZXZpbA==\r\n.\r\n",
		"a multipart in a message":             "DATA\r\nContent-Type: message/rfc822\r\n\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Transfer-Encoding: base64\r\n\r\nZXZpbA==\r\n--b--\r\n.\r\n",
		"no end":                               "DATA\r\n" + evil,
		"a stuffed dot":                        "DATA\r\nSubject: a\r\n\r\n..\r\nevil\r\n.\r\n",
		"a reset":                              "BDAT 19\r\nSubject: x\r\n\r\nevilRSET\r\n",
		"a line of 100 KiB":                    "DATA\r\nSubject: a\r\n\r\n" + strings.Repeat("x", 90<<10) + "evil\r\n.\r\n",
	} {
		l := newLab(t, `alert smtp any any -> any any (file.data; content:"evil"; content:!"..evil"; sid:1;)`)
		l.tcp(25).open().send(false, "220 mail\r\n", 1400).send(true, "EHLO a\r\n", 1400).send(true, text, 1400).close()
		l.want(name, "1")
	}
	l := newLab(t, `alert smtp any any -> any any (smtp.rcpt_to; content:"b@test"; sid:1;)`)
	l.tcp(25).open().send(true, "EHLO a\r\nDATA\r\n", 1400).send(false, "503 no\r\n", 1400).send(true, "RCPT TO:<b@test>\r\n", 1400)
	l.want("a refused message", "1")
}

// TLS behind STARTTLS is TLS.
func TestTLSBehindSTARTTLS(t *testing.T) {
	l := newLab(t, `alert tls any any -> any any (tls.sni; content:"mail.test"; sid:1;)
alert smtp any any -> any any (smtp.mail_from; content:"a@test"; sid:2;)`)
	c := l.tcp(25).open().send(true, "EHLO a\r\nSTARTTLS\r\n", 1400).send(false, "250 a\r\n454 no\r\n", 1400).send(true, "MAIL FROM:<a@test>\r\n", 5)
	c.send(true, "STARTTLS\r\n", 1400).send(false, "220 go\r\n", 1400).send(true, helloFor("mail.test"), 7)
	l.want("a server's name", "1 2")
}

// Inline, the part that a rule drops is not whole at the server.
func TestMailIsDroppedBeforeItsEnd(t *testing.T) {
	g := newGate(t, Config{Refuse: true}, `drop smtp any any -> any any (file.data; content:"evil"; sid:1;)`)
	g.open()
	text := "EHLO a\r\nDATA\r\n" + mailOf(t, attachment{"a", "base64", "so evil"}) + "\r\n.\r\n"
	seq := uint32(1)
	for _, part := range parts(text, 40) {
		if r := g.segment(true, seq, wire.FlagACK, part); r.Outcome == Drop {
			break
		}
		seq += uint32(len(part))
	}
	if got := g.received(); strings.Contains(got, "\r\n.\r\n") || g.sids() != "1" {
		t.Errorf("the server has the end of the message: %q, alerts %q", got, g.sids())
	}
}

// Mail of any bytes, in any segmentation, has one outcome.
func FuzzMail(f *testing.F) {
	f.Add([]byte("DATA\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Transfer-Encoding: base64\r\n\r\nZXZpbA==\r\n--b--\r\n.\r\nBDAT 4\r\nevil"), uint8(3))
	r := rulesOf(&testing.T{}, `alert smtp any any -> any any (file.data; content:"evil"; sid:1;)`, nil)
	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		alerts := func(mss int) int {
			l := &lab{t: t, now: 1e9}
			l.e = New(r, Config{}, func(a *Alert) { l.alerts = append(l.alerts, *a) })
			l.tcp(25).open().send(true, "EHLO a\r\n"+string(text), mss).close()
			return len(l.alerts)
		}
		if whole, cut := alerts(60000), alerts(max(int(size), 1)); whole != cut {
			t.Fatalf("%d alerts at once, %d in segments of %d", whole, cut, size)
		}
	})
}
