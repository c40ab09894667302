package proxy

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/semantics"
	"github.com/millrace/millrace/websocket"
)

// A WebSocket is asked for by Upgrade in HTTP/1.1 (RFC 6455 4.1), and by CONNECT with :protocol in HTTP/2 and HTTP/3
// (RFC 8441, RFC 9220), which have no key. The exchange translates where its sides differ.

// isWebSocket reports whether a request asks for one. Names of protocols in Upgrade differ in case (RFC 9110 7.8).
func isWebSocket(m *semantics.Message) bool { return strings.EqualFold(m.Protocol, "websocket") }

// isHandshake reports whether a request for a WebSocket is complete (RFC 6455 4.2.1). The gateway could make the key by itself,
// but then a client that knows nothing of WebSockets could have a tunnel.
func isHandshake(m *semantics.Message) bool {
	keys, valid := 0, false
	for i := range m.Fields {
		if f := &m.Fields[i]; f.Name == "sec-websocket-key" {
			keys, valid = keys+1, len(f.Value) == 24 && strings.HasSuffix(f.Value, "==")
		}
	}
	return m.Method == "CONNECT" || m.Method == "GET" && keys == 1 && valid
}

// prepareUpgrade completes outgoing for the version of the backend. The key exists only in HTTP/1.1 (RFC 8441 5): a client's key
// goes to a backend with HTTP/1.1 as it is, and to none with HTTP/2, where the gateway answers it itself. A client without a key
// gets one of the gateway. Any other protocol than WebSocket is asked for only where the rule names it (RFC
// 9110 7.8 lets a server ignore Upgrade): what is not understood cannot be bounded, and ends by a reset.
func (x *exchange) prepareUpgrade() {
	m := &x.outgoing
	if m.Protocol == "" {
		return
	}
	if x.session != nil { // the connection gives the protocol the name that its backend knows
		return
	}
	if !isWebSocket(m) {
		if x.pooled.Protocol != HTTP1 || !x.rule.upgradesTo(m.Protocol) {
			m.Protocol = ""
		}
		return
	}
	key := ""
	kept := x.fields[:0]
	for _, f := range x.fields {
		if f.Name == "sec-websocket-key" {
			key = f.Value
			continue
		}
		kept = append(kept, f)
	}
	x.fields = kept
	if x.pooled.Protocol == HTTP1 {
		if m.Method = "GET"; key == "" {
			key = websocket.NewKey()
		}
		x.fields = append(x.fields, semantics.Field{Name: "sec-websocket-key", Value: key})
	} else {
		m.Method = "CONNECT"
	}
	x.key = key
	m.Fields = x.fields
}

// upgraded returns the response as the client gets it: x.reply where it begins a tunnel, and m otherwise. ok is false where the
// response is wrong.
//
// A server may only switch to a protocol that the request has offered (RFC 9110 7.8). Any other 101 must fail: a client
// that took the bytes behind it for the next response, or a gateway that took them for a tunnel, could be made to read
// what an attacker has put there. Sec-WebSocket-Accept is checked by the gateway as a client must (RFC 6455 4.1): it
// shows that the server has understood the handshake and has not just echoed it. Any 2xx in answer to CONNECT begins a
// tunnel (RFC 9110 9.3.6). WebSocket servers send 200: others are refused, as a client with HTTP/1.1, which gets 101,
// could not see the difference.
func (x *exchange) upgraded(m *semantics.Message) (out *semantics.Message, ok bool) {
	if x.session != nil {
		return relayed{x}.accepted(m)
	}
	asked := x.outgoing.Protocol != ""
	if asked && !isWebSocket(&x.outgoing) {
		return x.upgradedTo(m)
	}
	connect := asked && x.outgoing.Method == "CONNECT"
	switch {
	case m.Status == 101 && (!asked || connect || !isWebSocket(m)), connect && m.Status > 200 && m.Status < 300:
		return nil, false
	case m.Status != 101 && !(connect && m.Status == 200):
		return m, true
	}
	isAccept := func(f semantics.Field) bool { return f.Name == "sec-websocket-accept" }
	i := slices.IndexFunc(m.Fields, isAccept)
	if !connect && (i < 0 || m.Fields[i].Value != websocket.AcceptKey(x.key)) {
		return nil, false
	}
	x.reply = *m
	x.fields = slices.DeleteFunc(append(x.fields[:0], m.Fields...), isAccept)
	if x.request.Method == "CONNECT" {
		x.reply.Status, x.reply.Protocol = 200, ""
	} else {
		x.reply.Status, x.reply.Protocol = 101, "websocket"
		x.fields = append(x.fields, semantics.Field{Name: "sec-websocket-accept", Value: websocket.AcceptKey(x.key)})
	}
	// A tunnel has no content, and so no length (RFC 9110 8.6 forbids Content-Length in 1xx and in 2xx to CONNECT).
	x.reply.ContentLength, x.reply.Fields = -1, x.fields
	return &x.reply, true
}

// upgradesTo reports whether a rule lets clients change to a protocol. One may be offered at a time: with a list the backend could
// choose one that the rule does not name.
func (r *Rule) upgradesTo(protocol string) bool {
	return slices.ContainsFunc(r.Upgrades, func(p string) bool { return strings.EqualFold(p, protocol) })
}

// upgradedTo is upgraded for another protocol than WebSocket. Before the end of the request a change would have its content read as
// the other protocol (RFC 9110 7.8).
func (x *exchange) upgradedTo(m *semantics.Message) (out *semantics.Message, ok bool) {
	if m.Status != 101 {
		return m, true
	}
	if !strings.EqualFold(m.Protocol, x.outgoing.Protocol) || x.up.message != allPassed {
		return nil, false
	}
	x.fields = append(x.fields[:0], m.Fields...)
	x.reply = *m
	x.reply.ContentLength, x.reply.Fields = -1, x.fields
	return &x.reply, true
}
