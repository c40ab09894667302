package websocket

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// deflateName is the extension's name in Sec-WebSocket-Extensions (RFC 7692 7).
const deflateName = "permessage-deflate"

// The parameters of permessage-deflate (RFC 7692 7.1).
const (
	paramServerNoTakeover = "server_no_context_takeover"
	paramClientNoTakeover = "client_no_context_takeover"
	paramServerBits       = "server_max_window_bits"
	paramClientBits       = "client_max_window_bits"
)

// maxExtensions bounds the extensions and parameters that are read from a header.
const maxExtensions = 64

// errExtensions reports a header that does not follow the grammar.
var errExtensions = errors.New("websocket: malformed Sec-WebSocket-Extensions header (RFC 6455 9.1)")

// extension is one element of Sec-WebSocket-Extensions.
type extension struct {
	name   string
	params []param
}

// param is a parameter of an extension. valued tells an empty value from none.
type param struct {
	name, value string
	valued      bool
}

// parseExtensions decodes the values of Sec-WebSocket-Extensions, which have the meaning of one list
// (RFC 6455 9.1):
//
//	extension-list  = 1#extension
//	extension       = token *( ";" extension-param )
//	extension-param = token [ "=" ( token | quoted-string ) ]
func parseExtensions(values []string) (list []extension, err error) {
	for _, s := range values {
		for s = skipEmpty(s); s != ""; s = skipEmpty(s) {
			var e extension
			if e, s, err = parseExtension(s); err != nil {
				return nil, err
			}
			if list = append(list, e); len(list) > maxExtensions {
				return nil, errExtensions
			}
			if s != "" && s[0] != ',' {
				return nil, errExtensions
			}
		}
	}
	return list, nil
}

// skipEmpty skips white space and empty elements, which lists may have (RFC 9110 5.6.1.2).
func skipEmpty(s string) string { return strings.TrimLeft(s, " \t,") }

func skipSpace(s string) string { return strings.TrimLeft(s, " \t") }

// parseExtension decodes an extension and returns the rest behind it.
func parseExtension(s string) (e extension, rest string, err error) {
	if e.name, s = cutToken(s); e.name == "" {
		return e, s, errExtensions
	}
	for s = skipSpace(s); s != "" && s[0] == ';'; s = skipSpace(s) {
		var p param
		if p.name, s = cutToken(skipSpace(s[1:])); p.name == "" {
			return e, s, errExtensions
		}
		if s = skipSpace(s); s != "" && s[0] == '=' {
			p.valued = true
			var ok bool
			if p.value, s, ok = cutValue(skipSpace(s[1:])); !ok {
				return e, s, errExtensions
			}
		}
		if e.params = append(e.params, p); len(e.params) > maxExtensions {
			return e, s, errExtensions
		}
	}
	return e, s, nil
}

// cutToken cuts the token off that s begins with, empty for none (RFC 9110 5.6.2).
func cutToken(s string) (token, rest string) {
	n := 0
	for n < len(s) && isTokenByte(s[n]) {
		n++
	}
	return s[:n], s[n:]
}

func isTokenByte(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0
}

// isToken reports whether s is one token.
func isToken(s string) bool {
	token, rest := cutToken(s)
	return token != "" && rest == ""
}

// cutValue cuts a token or a quoted string off, whose content must be a token too (RFC 6455 9.1).
func cutValue(s string) (value, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		value, rest = cutToken(s)
		return value, rest, value != ""
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return b.String(), s[i+1:], isToken(b.String())
		case s[i] == '\\' && i+1 < len(s):
			i++
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}

// deflateParams are the parameters of one offer or response. Bits of 0 are absent; clientBitsHint is
// client_max_window_bits without a value.
type deflateParams struct {
	serverNoTakeover, clientNoTakeover bool
	serverBits, clientBits             int
	clientBitsHint                     bool
}

// parseDeflate decodes the parameters. RFC 7692 7.1: a parameter that is unknown, appears twice or has a
// value it must not have makes the whole offer or response invalid.
func parseDeflate(params []param) (d deflateParams, err error) {
	seen := map[string]bool{}
	for _, p := range params {
		if seen[p.name] {
			return d, fmt.Errorf("websocket: %s: %s twice (RFC 7692 7.1)", deflateName, p.name)
		}
		seen[p.name] = true
		ok := !p.valued
		switch p.name {
		case paramServerNoTakeover:
			d.serverNoTakeover = true
		case paramClientNoTakeover:
			d.clientNoTakeover = true
		case paramServerBits:
			d.serverBits, ok = windowBits(p)
		case paramClientBits:
			if d.clientBitsHint = !p.valued; p.valued {
				d.clientBits, ok = windowBits(p)
			}
		default:
			return d, fmt.Errorf("websocket: %s: unknown parameter %q (RFC 7692 7)", deflateName, p.name)
		}
		if !ok {
			return d, fmt.Errorf("websocket: %s: %s has the wrong value %q (RFC 7692 7.1)", deflateName, p.name, p.value)
		}
	}
	return d, nil
}

// windowBits decodes a value from 8 to 15 without leading zeros (RFC 7692 7.1.2.1).
func windowBits(p param) (n int, ok bool) {
	if len(p.value) > 2 || strings.HasPrefix(p.value, "0") || strings.HasPrefix(p.value, "+") {
		return 0, false
	}
	n, err := strconv.Atoi(p.value)
	return n, err == nil && n >= 8 && n <= 15
}

// bitsOr15 returns the window that a number stands for, of which 0 is the largest.
func bitsOr15(n int) int {
	if n == 0 {
		return 15
	}
	return n
}

// check returns an error for preferences that no connection can have.
func (d Deflate) check() error {
	for _, bits := range []int{d.ServerWindowBits, d.ClientWindowBits} {
		if bits != 0 && (bits < 8 || bits > 15) {
			return fmt.Errorf("websocket: Deflate: %d window bits, want 8 to 15", bits)
		}
	}
	if d.Level < 0 || d.Level > 9 {
		return fmt.Errorf("websocket: Deflate: level %d, want 1 to 9", d.Level)
	}
	return nil
}

// acceptDeflate chooses the first offer that a server with the preferences can accept, and returns its
// response; "" declines all (RFC 7692 5.1). The client's order is its preference.
func acceptDeflate(offers []extension, prefer Deflate) (agreed Deflate, response string) {
	if !prefer.Enabled {
		return Deflate{}, ""
	}
	for _, o := range offers {
		if o.name != deflateName {
			continue
		}
		d, err := parseDeflate(o.params)
		if err != nil {
			continue // RFC 7692 7.1: decline this offer, look at the next
		}
		return acceptOffer(d, prefer)
	}
	return Deflate{}, ""
}

// acceptOffer returns what a server makes of a valid offer.
func acceptOffer(d deflateParams, prefer Deflate) (agreed Deflate, response string) {
	agreed = prefer
	agreed.ServerNoTakeover = prefer.ServerNoTakeover || d.serverNoTakeover
	agreed.ClientNoTakeover = prefer.ClientNoTakeover || d.clientNoTakeover
	agreed.ServerWindowBits = min(bitsOr15(prefer.ServerWindowBits), bitsOr15(d.serverBits))
	agreed.ClientWindowBits = 15
	if d.clientBits != 0 || d.clientBitsHint { // RFC 7692 7.1.2.2: only then may the server limit the client
		agreed.ClientWindowBits = min(bitsOr15(prefer.ClientWindowBits), bitsOr15(d.clientBits))
	}
	response = deflateName
	if agreed.ServerNoTakeover {
		response += "; " + paramServerNoTakeover
	}
	if agreed.ClientNoTakeover {
		response += "; " + paramClientNoTakeover
	}
	if d.serverBits != 0 || agreed.ServerWindowBits < 15 {
		response += "; " + paramServerBits + "=" + strconv.Itoa(agreed.ServerWindowBits)
	}
	if agreed.ClientWindowBits < 15 {
		response += "; " + paramClientBits + "=" + strconv.Itoa(agreed.ClientWindowBits)
	}
	return agreed, response
}

// offerDeflate returns a client's offer, "" for none.
func offerDeflate(prefer Deflate) string {
	if !prefer.Enabled {
		return ""
	}
	offer := deflateName
	if prefer.ServerNoTakeover {
		offer += "; " + paramServerNoTakeover
	}
	if prefer.ClientNoTakeover {
		offer += "; " + paramClientNoTakeover
	}
	if bits := bitsOr15(prefer.ServerWindowBits); bits < 15 {
		offer += "; " + paramServerBits + "=" + strconv.Itoa(bits)
	}
	offer += "; " + paramClientBits // the server may limit the client
	if bits := bitsOr15(prefer.ClientWindowBits); bits < 15 {
		offer += "=" + strconv.Itoa(bits)
	}
	return offer
}

// confirmDeflate checks a server's response to offerDeflate. An error fails the connection (RFC 7692 7.1,
// RFC 6455 4.1).
func confirmDeflate(response []extension, prefer Deflate) (agreed Deflate, err error) {
	if len(response) == 0 {
		return Deflate{}, nil
	}
	if len(response) > 1 || response[0].name != deflateName || !prefer.Enabled {
		return Deflate{}, fmt.Errorf("websocket: the server chose the extension %q, which was not offered", response[len(response)-1].name)
	}
	d, err := parseDeflate(response[0].params)
	if err != nil {
		return Deflate{}, err
	}
	server, client := bitsOr15(prefer.ServerWindowBits), bitsOr15(prefer.ClientWindowBits)
	switch {
	case d.clientBitsHint:
		return Deflate{}, fmt.Errorf("websocket: the server's %s has no value (RFC 7692 7.1.2.2)", paramClientBits)
	case prefer.ServerNoTakeover && !d.serverNoTakeover:
		return Deflate{}, fmt.Errorf("websocket: the server ignored %s (RFC 7692 7.1.1.1)", paramServerNoTakeover)
	case server < 15 && (d.serverBits == 0 || d.serverBits > server):
		return Deflate{}, fmt.Errorf("websocket: the server ignored %s (RFC 7692 7.1.2.1)", paramServerBits)
	case d.clientBits > client:
		return Deflate{}, fmt.Errorf("websocket: the server's %s exceeds the offer (RFC 7692 7.1.2.2)", paramClientBits)
	}
	agreed = prefer
	agreed.ServerNoTakeover = d.serverNoTakeover
	agreed.ClientNoTakeover = d.clientNoTakeover || prefer.ClientNoTakeover
	agreed.ServerWindowBits = bitsOr15(d.serverBits)
	agreed.ClientWindowBits = min(client, bitsOr15(d.clientBits))
	return agreed, nil
}
