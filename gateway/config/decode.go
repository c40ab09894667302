package config

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/regfile"
	"github.com/millrace/millrace/internal/strictyaml"
)

// Load reads and checks a configuration file and the lists that it names. Errors in them are an
// *Error.
func Load(path string) (*Config, error) {
	f, err := regfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(path, f)
}

// Read is Load of an open file. Its name is that of messages, and the lists are relative to its folder.
func Read(name string, r io.Reader) (*Config, error) {
	c, err := Examine(name, r)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Examine is Read that returns a configuration with errors too, as far as it could be read, to look for errors in the files
// that it names. It is nil where the file itself cannot be read.
func Examine(name string, r io.Reader) (*Config, error) {
	src, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	c, err := parse(name, src)
	if err != nil { // lists that are named in the wrong way would be errors that follow from others
		return c, err
	}
	return c, c.ReadLists()
}

// Parse checks the configuration in src; file names it in messages. All errors are reported at
// once, as an *Error. Lists that it names are read by Open or Reload.
func Parse(file string, src []byte) (*Config, error) {
	c, err := parse(file, src)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// parse is Parse that returns what it could read of a configuration with errors.
func parse(file string, src []byte) (*Config, error) {
	d := &decoder{Decoder: strictyaml.New(file, src), listAt: map[string]Problem{}, inspAt: map[string]Problem{}}
	d.Example, d.Cause, d.ShowAll = "examples/gateway.yaml", bareAddress, showAll
	c := newConfig()
	c.file, c.listAt, c.inspAt = file, d.listAt, d.inspAt
	if len(src) > maxFileBytes {
		d.FailAt(1, 1, "", fmt.Sprintf("file is larger than %d bytes", maxFileBytes))
	} else if root := d.Document(src); root != nil {
		d.config(root, c)
		(&checker{d}).check(c)
	}
	return c, d.Err()
}

// Schema returns the JSON Schema of a configuration file.
func Schema() *strictyaml.Schema {
	s := strictyaml.Describe(func(sd *strictyaml.Decoder, n *yaml.Node) {
		d := &decoder{Decoder: sd, listAt: map[string]Problem{}, inspAt: map[string]Problem{}}
		d.config(n, newConfig())
	})
	s.Title = "Configuration of millrace gateway"
	s.AnyOf = []*strictyaml.Schema{{Required: []string{"devices", "services"}}, {Required: []string{"listeners"}}}
	return s
}

// decoder reads a configuration. It keeps the places of what is compared with other parts of the file once all is read.
type decoder struct {
	*strictyaml.Decoder
	places places
	listAt map[string]Problem // see Config
	inspAt map[string]Problem // see Config
}

// l7Decoder reads the sections of the request path: listeners, routes and pools.
type l7Decoder struct{ *decoder }

// checker compares the parts of a configuration that has been read with each other.
type checker struct{ *decoder }

// bare6 is an IPv6 address with a port that lacks quotes: YAML takes its bracket for a list.
var bare6 = regexp.MustCompile(`(?:^|[^"'0-9A-Za-z])(\[[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*\]:(?:[0-9]+(?:-[0-9]+)?|\*))`)

// bareAddress returns the hint to quote an address, if lines have one that lacks quotes.
func bareAddress(lines []string) string {
	for i, text := range lines {
		text, _, _ = strings.Cut(text, "#")
		if m := bare6.FindStringSubmatch(text); m != nil {
			return fmt.Sprintf("quote the address on line %d: %q", i+1, m[1])
		}
	}
	return ""
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@/\[\]-]{0,62}$`)

// name reads a name that serves as a label in logs and metrics.
func (d *decoder) name(n *yaml.Node, what string, to *string) {
	if d.Takes(strictyaml.Schema{Type: "string", Title: "name", Pattern: nameForm.String()}) {
		return
	}
	if n.Kind != yaml.ScalarNode || !nameForm.MatchString(n.Value) {
		d.Fail(n, "1 to 63 letters, digits and . _ : @ / [ ] -, the first a letter or digit", "%s is not a name: %s", what, strictyaml.Kind(n))
		return
	}
	*to = n.Value
}

// addr reads an address that a host can have.
func (d *decoder) addr(n *yaml.Node, what string) (netip.Addr, bool) {
	if d.Takes(strictyaml.Schema{Type: "string", Title: "IP address"}) {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		d.Fail(n, "such as 198.18.0.1 or 2001:db8::1", "%s must be an IP address, not %s", what, strictyaml.Kind(n))
		return a, false
	}
	return a, d.unicast(n, what, a)
}

// unicast rejects addresses that cannot be rewritten to or from.
func (d *decoder) unicast(n *yaml.Node, what string, a netip.Addr) bool {
	why := ""
	switch {
	case a.IsUnspecified():
		why = "unspecified"
	case a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		why = "multicast"
	case a.IsLoopback():
		why = "a loopback address"
	case a.Is4In6():
		why = "an IPv4 address in IPv6 form"
	case a.Zone() != "" || a.IsLinkLocalUnicast():
		why = "a link-local address"
	default:
		return true
	}
	d.Fail(n, "", "%s cannot be %s: it is %s", what, a, why)
	return false
}

// addrPort reads an address and a port.
func (d *decoder) addrPort(n *yaml.Node, what string) (netip.AddrPort, bool) {
	if d.Takes(strictyaml.Schema{Type: "string", Title: "IP:port"}) {
		return netip.AddrPort{}, false
	}
	ap, err := netip.ParseAddrPort(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		d.Fail(n, addrPortHint(n.Value), "%s must be an IP address and a port, not %s", what, strictyaml.Kind(n))
		return ap, false
	}
	if ap.Port() == 0 {
		d.Fail(n, "", "%s has port 0", what)
		return ap, false
	}
	return ap, d.unicast(n, what, ap.Addr())
}

// addrPorts reads an address and a port or a range of ports.
func (d *decoder) addrPorts(n *yaml.Node, what string) (AddrPorts, bool) {
	a, err := ParseAddrPorts(n.Value)
	switch {
	case n.Kind != yaml.ScalarNode:
		d.Fail(n, addrPortHint(n.Value), "%s must be an IP address and a port, not %s", what, strictyaml.Kind(n))
	case errors.Is(err, errPortZero):
		d.Fail(n, "", "%s has port 0", what)
	case errors.Is(err, errPortsReversed):
		d.Fail(n, "the lower one comes first", "%s %s has no port: the first is above the last", what, n.Value)
	case err != nil:
		d.Fail(n, addrPortHint(n.Value), "%s must be an IP address and a port, not %s", what, strictyaml.Kind(n))
	default:
		return a, d.unicast(n, what, a.Addr())
	}
	return a, false
}

func addrPortHint(s string) string {
	if a, err := netip.ParseAddr(s); err == nil {
		return "the port is missing: " + netip.AddrPortFrom(a, 80).String()
	}
	if i := strings.LastIndexByte(s, ':'); i >= 0 && strings.ContainsAny(s[i:], "-*+") {
		return "such as 198.18.0.1:8000-8099, or 198.18.0.1:* for all ports"
	}
	return "such as 198.18.0.1:80 or \"[2001:db8::1]:80\""
}

// portRange reads "first-last".
func (d *decoder) portRange(n *yaml.Node, what string, to *PortRange) {
	if d.Takes(strictyaml.Schema{Type: "string", Title: "range of ports", Default: fmt.Sprintf("%d-%d", to.First, to.Last)}) {
		return
	}
	first, last, ok := strings.Cut(n.Value, "-")
	a, errA := strconv.ParseUint(strings.TrimSpace(first), 10, 16)
	b, errB := strconv.ParseUint(strings.TrimSpace(last), 10, 16)
	if n.Kind != yaml.ScalarNode || !ok || errA != nil || errB != nil || a == 0 || a > b {
		d.Fail(n, "such as 1024-65535", "%s must be a range of ports, not %s", what, strictyaml.Kind(n))
		return
	}
	*to = PortRange{First: uint16(a), Last: uint16(b)}
}
