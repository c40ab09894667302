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

// A rule on file.name is evaluated on each name that readers of mail take for that of an attachment, with the content of the file.
func TestReadingsOfMailNames(t *testing.T) {
	const rules = `alert smtp any any -> any any (file.name; content:"evil.exe"; endswith; sid:1;)
alert smtp any any -> any any (file.name; content:"evil.exe"; file.data; content:"MZ"; sid:2;)
alert smtp any any -> any any (file.name; content:"evil.exe"; file.data; content:"fine"; sid:3;)`
	const disposition, kind = "Content-Disposition: attachment; ", "Content-Type: a/b; "
	for head, want := range map[string]string{
		disposition + `filename="evil.exe"`:                                          "1 2",
		disposition + `filename=a.txt; filename="evil.exe"`:                          "1 2",
		disposition + `filename="evil.exe"; filename=a.txt`:                          "1 2",
		disposition + `filename=a; filename*=utf-8''%65vil%2eexe`:                    "1 2",
		disposition + "filename*0=ev;\r\n filename*1=\"il.\";\r\n filename*2*=%65xe": "1 2",
		disposition + manyPieces(20) + ` filename*20="evil.exe"`:                     "1 2",
		disposition + `filename="=?utf-8?B?ZXZpbC5leGU=?="`:                          "1 2",
		disposition + `filename="=?koi8-r?q?e=76il.exe?="`:                           "1 2",
		disposition + "filename=\"=?utf-8?q?ev?=\r\n =?utf-8?q?il=2Eexe?=\"":         "1 2",
		disposition + "filename=a.txt\r\n" + disposition + "filename=evil.exe":       "1 2",
		disposition + "filename=evil.exe\r\n" + disposition + "filename=a.txt":       "1 2",
		kind + `name="evil.exe"`:                                                     "1 2",
		kind + `name=a.txt; name="evil.exe"`:                                         "1 2",
		kind + `name*=us-ascii'en'evil%2Eexe`:                                        "1 2",
		kind + `name*0=evil; name*1=.exe`:                                            "1 2",
		kind + `name="=?windows-1252?B?ZXZpbC5leGU=?="`:                              "1 2",
		kind + "name=evil.exe\r\n" + disposition + "filename=a.txt":                  "1 2",
		disposition + "filename=a.txt\r\n" + kind + "name=evil.exe":                  "1 2",
		disposition + `filename=a.txt; names="evil.exe"`:                             "",
		disposition + `filename=a.txt`:                                               "",
		"Content-Description: evil.exe":                                              "",
	} {
		message := "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n" + disposition + "filename=other\r\n\r\nfine\r\n--b\r\n" + head +
			"\r\n\r\nMZ payload\r\n--b--\r\n"
		for _, mss := range []int{7, 1400} {
			l := newLab(t, rules)
			l.tcp(25).open().send(false, "220 mail\r\n", mss).send(true, "EHLO a\r\n", mss).send(true, "DATA\r\n"+message+".\r\n", mss).close()
			l.want(fmt.Sprintf("%s, segments of %d", head, mss), want)
		}
	}
}

// manyPieces returns the first n pieces of a name (RFC 2231 3).
func manyPieces(n int) (out string) {
	for i := range n {
		out += fmt.Sprintf("filename*%d=x;", i)
	}
	return out
}

// A file without content has a name.
func TestNamesOfEmptyFiles(t *testing.T) {
	const rule = `alert tcp any any -> any any (file.name; content:"evil.exe"; endswith; sid:1;)`
	const part = "Content-Disposition: attachment; filename=evil.exe\r\n"
	for name, text := range map[string]string{
		"a part":                  "--b\r\n" + part + "\r\n--b--\r\n",
		"the first part":          "--b\r\n" + part + "\r\n--b\r\n\r\nfine\r\n--b--\r\n",
		"an empty line":           "--b\r\n" + part + "\r\n\r\n--b--\r\n",
		"no end of the head":      "--b\r\n" + part + "--b--\r\n",
		"no end of the first":     "--b\r\n" + part + "--b\r\n\r\nfine\r\n--b--\r\n",
		"no boundary behind":      "--b\r\n" + part + "\r\n",
		"nothing behind the head": "--b\r\n" + part,
		"a message":               "--b\r\nContent-Type: message/rfc822\r\n" + part + "\r\nSubject: i\r\n\r\ntext\r\n--b--\r\n",
		"an encoded part":         "--b\r\nContent-Transfer-Encoding: base64\r\n" + part + "\r\n====\r\n--b--\r\n",
	} {
		l := newLab(t, rule)
		l.tcp(25).open().send(false, "220 mail\r\n", 1400).send(true, "EHLO a\r\nDATA\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n"+text+".\r\n", 1400).close()
		l.want("mail: "+name, "1")
		if name == "a message" || name == "an encoded part" || name == "nothing behind the head" { // a body may still grow
			continue
		}
		l = newLab(t, rule)
		body := strings.ReplaceAll(text, "attachment", "form-data")
		l.tcp(80).open().send(true, fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n", len(body))+body, 1400)
		l.want("a form: "+name, "1")
	}
	l := newLab(t, rule)
	l.tcp(25).open().send(false, "220 mail\r\n", 1400).send(true, "EHLO a\r\nDATA\r\n"+part+"\r\n.\r\n", 1400).close()
	l.want("a message without parts", "1")
}

// Of several boundaries each may be the one that readers take.
func TestReadingsOfMailBoundaries(t *testing.T) {
	for kind, want := range map[string]string{
		"boundary=b": "1", "boundary=x; boundary=b": "1", "boundary=b; boundary=x": "1", "boundary*=us-ascii''%62": "1", "boundary*0=x; boundary=b": "1",
		"a=\"; boundary=x\"; boundary=b": "1", "boundary=x": "",
	} {
		l := newLab(t, `alert smtp any any -> any any (file.name; content:"evil.exe"; file.data; content:"MZ"; sid:1;)`)
		text := "Content-Type: multipart/mixed; " + kind + "\r\n\r\n--b\r\nContent-Disposition: attachment; filename=evil.exe\r\n\r\nMZ\r\n--b--\r\n.\r\n"
		l.tcp(25).open().send(false, "220 mail\r\n", 1400).send(true, "EHLO a\r\nDATA\r\n"+text, 1400).close()
		l.want(kind, want)
	}
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
