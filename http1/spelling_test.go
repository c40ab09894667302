package http1

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/semantics"
)

// Names of fields pass as the client wrote them, those of the framing too. Others have capitals.
func TestSpellingsOfFieldNames(t *testing.T) {
	m := NewMachine(RoleServer, Options{KeepCase: true})
	const in = "POST /a:B HTTP/1.1\r\nHOST: a:80\r\nx-lower: 1:2\r\nX-cAmEl: y\r\nCONTENT-length: 2\r\nSOAPAction: z\r\nx-camel: w\r\n\r\nok"
	ev, _, err := m.Input([]byte(in), false)
	if err != nil || ev.Kind != Headers {
		t.Fatal(ev, err)
	}
	msg := m.Message().Message
	if want := []string{"HOST", "x-lower", "X-cAmEl", "CONTENT-length", "SOAPAction", "x-camel"}; !slices.Equal(msg.Spellings, want) {
		t.Errorf("spellings %q", msg.Spellings)
	}
	if msg.Fields[1].Name != "x-camel" {
		t.Errorf("fields %v are not in lower case", msg.Fields)
	}
	msg.Fields = append(msg.Fields, semantics.Field{Name: "x-forwarded-for", Value: "a:b"}, semantics.Field{Name: "via", Value: "1.1 x"})
	for keep, want := range map[bool]string{
		true: "POST /a:B HTTP/1.1\r\nHOST: a:80\r\nx-lower: 1:2\r\nX-cAmEl: y\r\nSOAPAction: z\r\nX-cAmEl: w\r\nX-Forwarded-For: a:b\r\nVia: 1.1 x\r\n" +
			"CONTENT-length: 2\r\n\r\n",
		false: "POST /a:B HTTP/1.1\r\nhost: a:80\r\nx-lower: 1:2\r\nx-camel: y\r\nsoapaction: z\r\nx-camel: w\r\nx-forwarded-for: a:b\r\nvia: 1.1 x\r\n" +
			"content-length: 2\r\n\r\n",
	} {
		out, err := NewMachine(RoleClient, Options{KeepCase: keep}).AppendRequest([]byte("before: x\r\n"), &msg, false)
		if err != nil || string(out) != "before: x\r\n"+want {
			t.Errorf("keep %v: %q, %v", keep, out, err)
		}
	}
	plain := NewMachine(RoleServer, Options{})
	if _, _, err := plain.Input([]byte(in), false); err != nil || plain.Message().Spellings != nil {
		t.Errorf("without the option: %q, %v", plain.Message().Spellings, err)
	}
}

// Content beside an upgrade is refused without UpgradeContent, and for WebSocket in any case.
func TestContentBesideUpgrade(t *testing.T) {
	for _, c := range []struct {
		protocol string
		permit   bool
		ok       bool
	}{{"tcp", true, true}, {"tcp", false, false}, {"websocket", true, false}, {"WebSocket", true, false}} {
		m := NewMachine(RoleServer, Options{UpgradeContent: c.permit})
		_, _, err := m.Input([]byte("POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: "+c.protocol+"\r\nContent-Length: 2\r\n\r\n"), false)
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
