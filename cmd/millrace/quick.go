package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/gateway/config"
)

// quick is a gateway that flags describe in place of a file. It makes the text of one, so that whatever holds for files holds here, and
// --print shows where to go on from.
type quick struct {
	from      string
	to        string
	dir       string // to serve
	listing   bool
	spa       bool
	hidden    bool
	cert, key string
	acme      []string
	acmeDir   string
	directory string
	caFile    string
	terms     bool
	print     bool
	json      bool

	insecure bool
}

// quickFile is the name of the text in messages.
const quickFile = "(command line)"

func (q *quick) flags(cmd *cobra.Command, from string) {
	fl := cmd.Flags()
	fl.StringVar(&q.from, "from", from, "address to listen at; :PORT is every address of the machine")
	fl.StringVar(&q.cert, "cert", "", "PEM file of a certificate and its chain: serve HTTPS")
	fl.StringVar(&q.key, "key", "", "PEM file of its key (default: in --cert)")
	fl.StringSliceVar(&q.acme, "acme", nil, "serve HTTPS for these names, with certificates of an authority (ACME)")
	fl.BoolVar(&q.terms, "acme-agree", false, "agree to the terms of the authority, which --acme needs")
	fl.StringVar(&q.acmeDir, "acme-dir", "", "folder of account, keys and certificates (default: millrace/acme in the user's folder of data)")
	fl.StringVar(&q.directory, "acme-directory", "", "URL of the authority (default: Let's Encrypt)")
	fl.StringVar(&q.caFile, "acme-ca", "", "PEM file that HTTPS of the authority is verified by (default: the system's)")
	fl.BoolVar(&q.print, "print", false, "print the configuration file that stands for the flags, and end")
	fl.BoolVar(&q.json, "json", false, "log and print JSON")
	completeFiles(cmd, "cert", "pem", "crt")
	completeFiles(cmd, "key", "pem", "key")
}

const serveLong = `Serve the files of a folder over HTTP, or HTTPS with --cert or --acme. Requests get
index.html of a folder, with --listing the names in it. Ranges, conditions and
HEAD are answered as of any server; a file that lies beside another with .br, .zst
or .gz is sent in its place to clients that accept it. Nothing outside the folder
is served, whatever paths and symbolic links say, and no name that begins with a
dot but /.well-known (--hidden serves those too).

The server is the gateway with one route; --print prints its configuration file,
with which "millrace gateway -c FILE" does the same, and more. It ends with
SIGINT or SIGTERM, after the requests in progress.`

func newServe(c *console) *cobra.Command {
	q := &quick{}
	cmd := &cobra.Command{
		Use: "serve DIR", Short: "Serve the files of a folder over HTTP", Long: serveLong,
		Example: `  millrace serve .
  millrace serve --listing --from :8080 /srv/www
  millrace serve --spa --print dist > gateway.yaml`,
		Args: cobra.ExactArgs(1),
	}
	q.flags(cmd, "127.0.0.1:8080")
	fl := cmd.Flags()
	fl.BoolVar(&q.listing, "listing", false, "list the names in folders without an index")
	fl.BoolVar(&q.spa, "spa", false, "answer paths without a file by /index.html, for applications that route in the browser")
	fl.BoolVar(&q.hidden, "hidden", false, "serve names that begin with a dot")
	cmd.RunE = command(func(ctx context.Context, args []string) error {
		if q.listing && q.spa {
			return usage("--listing and --spa: either answers for a folder without an index")
		}
		q.dir = args[0]
		return q.run(ctx, c)
	})
	return cmd
}

const quickProxyLong = `Pass requests that come to one address on to one server, without a configuration
file: over HTTP, or HTTPS with --cert or --acme. --to is HOST:PORT, a URL with http, https,
h2c or h2, or unix:/PATH. Names are looked up again as their time to live ends. The
certificate of a server with TLS is verified, unless --insecure.

--print prints the configuration file that stands for the flags, with which
"millrace gateway -c FILE" does the same, and more.`

func newGatewayProxy(c *console) *cobra.Command {
	q := &quick{}
	cmd := &cobra.Command{
		Use: "proxy --from ADDRESS --to SERVER", Short: "Pass requests on to one server, without a file", Long: quickProxyLong,
		Example: `  millrace gateway proxy --from :8080 --to localhost:9000
  millrace gateway proxy --from :8443 --cert site.pem --key site.key --to https://app.example.org
  millrace gateway proxy --from :443 --acme www.example.org --acme-agree --to localhost:9000
  millrace gateway proxy --from :8080 --to unix:/run/app.sock`,
		Args: cobra.NoArgs,
	}
	q.flags(cmd, "127.0.0.1:8080")
	cmd.Flags().StringVar(&q.to, "to", "", "the server: HOST:PORT, a URL, or unix:/PATH")
	cmd.Flags().BoolVar(&q.insecure, "insecure", false, "take any certificate of the server")
	cmd.RunE = command(func(ctx context.Context, _ []string) error {
		if q.to == "" {
			return usage("no server; name one with --to")
		}
		return q.run(ctx, c)
	})
	return cmd
}

// run runs the gateway, or prints its file.
func (q *quick) run(ctx context.Context, c *console) error {
	text, err := q.text()
	if err != nil {
		return err
	}
	parse := func() (*config.Config, error) { return config.Read(quickFile, strings.NewReader(text)) }
	if _, err := parse(); err != nil {
		return configured(err, quickFile)
	}
	if q.print {
		c.printf("%s", text)
		return nil
	}
	return runGateway(ctx, c, &gatewayFlags{config: quickFile, json: q.json, parse: parse})
}

// text returns the file.
func (q *quick) text() (string, error) {
	listeners, err := addressesOf(q.from)
	if err != nil {
		return "", err
	}
	protocol, tls, err := q.tls()
	if err != nil {
		return "", err
	}
	rule, pools := "", ""
	if q.dir != "" {
		rule, err = q.static()
	} else {
		rule = "backend_refs: [{name: server}]"
		pools, err = q.pool()
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(`admin: {socket: ""}
listeners:
  - {name: web, address: [%s], protocol: %s%s}
routes:
  - {name: all, rules: [{%s}]}
%s`, listeners, protocol, tls, rule, pools), nil
}

// tls returns the protocol of the listener, and its certificates.
func (q *quick) tls() (protocol, tls string, err error) {
	switch {
	case len(q.acme) > 0 && q.cert != "":
		return "", "", usage("--acme and --cert: either has the certificate")
	case len(q.acme) == 0 && (q.terms || q.acmeDir != "" || q.directory != "" || q.caFile != ""):
		return "", "", usage("--acme-agree, --acme-dir, --acme-directory and --acme-ca are for --acme")
	case q.cert == "" && q.key != "":
		return "", "", usage("--key is of a certificate; name it with --cert")
	case len(q.acme) > 0:
		tls, err = q.obtained()
	case q.cert != "":
		tls, err = q.fromFiles()
	default:
		return "HTTP", "", nil
	}
	return "HTTPS", ", tls: {" + tls + "}", err
}

// fromFiles returns the certificate of files.
func (q *quick) fromFiles() (string, error) {
	cert, err := absolute(q.cert)
	if err != nil || q.key == "" {
		return fmt.Sprintf("certificates: [{cert: %q}]", cert), err
	}
	key, err := absolute(q.key)
	return fmt.Sprintf("certificates: [{cert: %q, key: %q}]", cert, key), err
}

// obtained returns certificates of an authority. The challenge is that of TLS: there is no listener at port 80.
func (q *quick) obtained() (string, error) {
	if !q.terms {
		return "", usage("--acme: read the terms of the authority, and agree to them with --acme-agree")
	}
	dir := q.acmeDir
	if dir == "" {
		data := os.Getenv("XDG_DATA_HOME")
		if data == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", usage("--acme: name a folder with --acme-dir: %v", err)
			}
			data = filepath.Join(home, ".local", "share")
		}
		dir = filepath.Join(data, "millrace", "acme")
	}
	dir, err := absolute(dir)
	if err != nil {
		return "", err
	}
	var names []string
	for _, n := range q.acme {
		names = append(names, strconv.Quote(n))
	}
	text := fmt.Sprintf("acme: {names: [%s], dir: %q, agree_to_terms: true, challenges: tls-alpn-01", strings.Join(names, ", "), dir)
	if q.directory != "" {
		text += fmt.Sprintf(", directory: %q", q.directory)
	}
	if q.caFile != "" {
		file, err := absolute(q.caFile)
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf(", ca_file: %q", file)
	}
	return text + "}", nil
}

// addressesOf returns the addresses that --from stands for, as YAML.
func addressesOf(from string) (string, error) {
	host, port, err := net.SplitHostPort(from)
	if err != nil {
		return "", usage("--from %s: it is ADDRESS:PORT or :PORT", from)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", usage("--from %s: %q is no port", from, port)
	}
	hosts := []string{host}
	switch host {
	case "":
		hosts = []string{"0.0.0.0"}
		if fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err == nil { // a kernel may be without IPv6
			_ = unix.Close(fd)
			hosts = append(hosts, "::")
		}
	case "localhost":
		hosts = []string{"127.0.0.1"}
	}
	var list []string
	for _, h := range hosts {
		if _, err := netip.ParseAddr(h); err != nil {
			return "", usage("--from %s: %q is no IP address", from, h)
		}
		list = append(list, strconv.Quote(net.JoinHostPort(h, port)))
	}
	return strings.Join(list, ", "), nil
}

// static returns what serves the folder.
func (q *quick) static() (string, error) {
	dir, err := absolute(q.dir)
	if err != nil {
		return "", err
	}
	if st, err := os.Stat(dir); err != nil {
		return "", err
	} else if !st.IsDir() {
		return "", fmt.Errorf("%s is no folder", q.dir)
	}
	more := ""
	if q.listing {
		more += ", listing: true"
	}
	if q.hidden {
		more += ", hidden: true"
	}
	if q.spa {
		more += `, try_files: ["${path}", /index.html]`
	}
	return fmt.Sprintf("static: {root: %q, precompressed: [br, zstd, gzip]%s}", dir, more), nil
}

// quickSchemes are the protocols of servers by the schemes of their URLs, with their ports.
var quickSchemes = map[string]struct {
	protocol config.PoolProtocol
	port     string
}{
	"http": {config.PoolHTTP, "80"}, "h2c": {config.PoolH2C, "80"}, "https": {config.PoolHTTPS, "443"}, "h2": {config.PoolH2, "443"},
}

// pool returns the pool of the server.
func (q *quick) pool() (string, error) {
	address, protocol, host := q.to, config.PoolHTTP, ""
	if scheme, _, ok := strings.Cut(q.to, "://"); ok {
		u, err := url.Parse(q.to)
		of, known := quickSchemes[scheme]
		switch {
		case err != nil || u.Host == "":
			return "", usage("--to %s is no URL of a server", q.to)
		case !known:
			return "", usage("--to %s: the scheme is http, https, h2c or h2", q.to)
		case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.User != nil:
			return "", usage("--to %s names more than a server: a path needs a file with the filter URLRewrite", q.to)
		}
		port := u.Port()
		if port == "" {
			port = of.port
		}
		protocol, host = of.protocol, u.Hostname()
		address = net.JoinHostPort(host, port)
	} else if port, err := strconv.ParseUint(q.to, 10, 16); err == nil && port > 0 { // a port of this machine
		address = fmt.Sprintf("127.0.0.1:%d", port)
	}
	tls := ""
	switch {
	case protocol.HasTLS() && q.insecure:
		tls = ", tls: {insecure: true}"
	case protocol.HasTLS():
		if _, err := netip.ParseAddr(host); err == nil {
			return "", usage("--to %s: a certificate has a name, and the server is an address; take its name, or --insecure", q.to)
		}
		tls = fmt.Sprintf(", tls: {server_name: %q}", host)
	case q.insecure:
		return "", usage("--insecure is for a server with TLS: --to https://...")
	}
	return fmt.Sprintf("pools:\n  - {name: server, protocol: %s%s, backends: [{address: %q}]}\n", protocol, tls, address), nil
}

// absolute returns a path that does not depend on the folder of a file.
func absolute(path string) (string, error) {
	if path == "" {
		return "", errors.New("an empty path")
	}
	return filepath.Abs(path)
}
