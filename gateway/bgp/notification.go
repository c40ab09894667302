package bgp

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// code is the error code of a NOTIFICATION (RFC 4271 4.5).
type code uint8

const (
	codeHeader code = 1
	codeOpen   code = 2
	codeUpdate code = 3
	codeHold   code = 4
	codeState  code = 5
	codeCease  code = 6
)

// Subcodes that the speaker sends or acts upon.
const (
	openVersion      = 1 // RFC 4271 6.2
	openPeerAS       = 2
	openIdentifier   = 3
	openParameter    = 4
	openHoldTime     = 6
	openCapability   = 7 // RFC 5492 5
	ceasePrefixes    = 1 // RFC 4486 4
	ceaseShutdown    = 2
	ceaseUnconfig    = 3
	ceaseReset       = 4
	ceaseReconfig    = 6
	updateAttributes = 1
	updateField      = 10
)

// Notification is a NOTIFICATION message: why a peer, or this speaker, ends a session. It is an error.
type Notification struct {
	Code    code
	Subcode uint8
	Data    []byte

	received bool // from the peer
}

// names are the errors of RFC 4271 4.5, RFC 5492, RFC 6608, RFC 4486 and RFC 8538, by code and subcode; 0 is the code itself.
var names = map[code]map[uint8]string{
	codeHeader: {0: "message header error", 1: "connection not synchronized", 2: "bad message length", 3: "bad message type"},
	codeOpen: {
		0: "OPEN message error", openVersion: "unsupported version number", openPeerAS: "bad peer AS", openIdentifier: "bad BGP identifier",
		openParameter: "unsupported optional parameter", openHoldTime: "unacceptable hold time", openCapability: "unsupported capability",
	},
	codeUpdate: {
		0: "UPDATE message error", updateAttributes: "malformed attribute list", 2: "unrecognized well-known attribute", 3: "missing well-known attribute",
		4: "attribute flags error", 5: "attribute length error", 6: "invalid ORIGIN attribute", 8: "invalid NEXT_HOP attribute",
		9: "optional attribute error", updateField: "invalid network field", 11: "malformed AS_PATH",
	},
	codeHold:  {0: "hold timer expired"},
	codeState: {0: "finite state machine error", 1: "unexpected message in OpenSent", 2: "unexpected message in OpenConfirm", 3: "unexpected message in Established"},
	codeCease: {
		0: "cease", ceasePrefixes: "maximum number of prefixes reached", ceaseShutdown: "administrative shutdown", ceaseUnconfig: "peer de-configured",
		ceaseReset: "administrative reset", 5: "connection rejected", ceaseReconfig: "other configuration change", 7: "connection collision resolution",
		8: "out of resources", 9: "hard reset", 10: "BFD down",
	},
}

// Error implements error.
func (n *Notification) Error() string {
	text, ok := names[n.Code][n.Subcode]
	if !ok {
		text = fmt.Sprintf("%s, subcode %d", names[n.Code][0], n.Subcode)
		if names[n.Code] == nil {
			text = fmt.Sprintf("error code %d, subcode %d", n.Code, n.Subcode)
		}
	}
	if said := n.communication(); said != "" {
		text += fmt.Sprintf(" (%q)", said)
	}
	if n.received {
		return "the peer has sent: " + text
	}
	return text
}

// communication returns the text that an operator has sent along (RFC 9003 2), "" for none. It goes to a log: what is no text in
// UTF-8 is left out.
func (n *Notification) communication() string {
	if n.Code != codeCease || n.Subcode != ceaseShutdown && n.Subcode != ceaseReset || len(n.Data) < 2 {
		return ""
	}
	said := n.Data[1:]
	if len(said) < int(n.Data[0]) || !utf8.Valid(said[:n.Data[0]]) {
		return ""
	}
	return strings.ToValidUTF8(string(said[:n.Data[0]]), "")
}

// append appends the message. Data that does not fit is left out.
func (n *Notification) append(b []byte) []byte {
	start := len(b)
	b = append(beginMessage(b, typeNotification), byte(n.Code), n.Subcode)
	b = append(b, n.Data[:min(len(n.Data), maxMessage-headerLen-2)]...)
	return endMessage(b, start)
}

// parseNotification parses the body of a message, which the reader has found long enough.
func parseNotification(body []byte) *Notification {
	return &Notification{Code: code(body[0]), Subcode: body[1], Data: append([]byte(nil), body[2:]...), received: true}
}

// shutdown returns what ends a session in good order, with a text for the operator of the router (RFC 9003).
func shutdown(subcode uint8, text string) *Notification {
	if subcode != ceaseShutdown && subcode != ceaseReset {
		return &Notification{Code: codeCease, Subcode: subcode}
	}
	return &Notification{Code: codeCease, Subcode: subcode, Data: append([]byte{byte(len(text))}, text...)}
}
