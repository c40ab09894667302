package convert

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway/config"
)

// scriptsOf returns the FastCGI settings of the pools, in the order of the output.
func scriptsOf(c *config.Config) (list []*config.FastCGI) {
	for i := range c.Pools {
		if p := &c.Pools[i]; p.FastCGI != nil {
			list = append(list, p.FastCGI)
		}
	}
	return list
}

func TestFoldersAndNamesOfScripts(t *testing.T) {
	for _, c := range []struct {
		language                              Language
		text                                  string
		root, local, index, fallback, extends string
	}{
		{Nginx, `server { listen 80; root /srv/www; location ~ \.php$ { fastcgi_pass php:9000; } }`, "/srv/www", "", "index.php", "", ".php"},
		{Nginx, `server { listen 80; root /srv/www; location ~ \.php$ { fastcgi_param SCRIPT_FILENAME /var/www/html$fastcgi_script_name; fastcgi_pass php:9000; } }`, "/var/www/html", "/srv/www", "index.php", "", ".php"},
		{Nginx, `server { listen 80; root /srv/www; location ~ \.php$ { fastcgi_param SCRIPT_FILENAME $realpath_root/public$fastcgi_script_name; fastcgi_index app.php; fastcgi_pass php:9000; } }`, "/srv/www/public", "/srv/www", "app.php", "", ".php"},
		{Nginx, `server { listen 80; root /srv/www; location ~ \.(php|phtml)$ { try_files $uri /index.php; fastcgi_pass php:9000; } }`, "/srv/www", "", "index.php", "/index.php", ".php .phtml"},
		{Nginx, `server { listen 80; root /srv/www; location / { try_files $uri @app; } location @app { include fastcgi_params; fastcgi_param SCRIPT_FILENAME $document_root/web/app.php; fastcgi_pass php:9000; } }`, "/srv/www", "", "index.php", "/web/app.php", ".php"},
		{Caddy, ":80 {\n\troot /srv/www\n\tphp_fastcgi php:9000\n}\n", "/srv/www", "", "index.php", "/index.php", ".php"},
		{Caddy, ":80 {\n\troot /srv/www\n\tphp_fastcgi php:9000 {\n\t\troot /app\n\t\tindex main.php\n\t\tsplit .php .php5\n\t}\n\tfile_server\n}\n", "/app", "/srv/www", "main.php", "/main.php", ".php .php5"},
		{Caddy, ":80 {\n\troot /srv/www\n\tphp_fastcgi php:9000 {\n\t\ttry_files {path} =404\n\t}\n}\n", "/srv/www", "", "index.php", "", ".php"},
	} {
		out, r := converted(t, c.language, c.text)
		list := scriptsOf(out)
		if len(list) != 1 {
			t.Errorf("%s: %d pools\n%s", c.text, len(list), r.Config)
			continue
		}
		f := list[0]
		if f.Root != c.root || f.LocalRoot != c.local || f.Index != c.index || f.Fallback != c.fallback || strings.Join(f.Extensions, " ") != c.extends || r.Left > 0 {
			t.Errorf("%s: %+v\n%s", c.text, f, r.Text(true))
		}
	}
}

// Files and scripts of one folder: what is no file goes to the script, and what is no script is not run.
func TestFilesBesideScripts(t *testing.T) {
	php := `location ~ \.php$ { fastcgi_pass php:9000; }`
	for _, c := range []struct {
		text     string
		pool     bool
		fallback string
	}{
		{`location / { try_files $uri $uri/ /index.php?$args; }`, true, "/index.php"},
		{`location / { try_files $uri $uri/ =404; } index index.php;`, true, ""},
		{`index index.html index.php;`, true, ""},
		{`index index.html;`, false, ""},
		{`location / { root /srv/other; try_files $uri =404; }`, false, ""},
	} {
		out, r := converted(t, Nginx, "server { listen 80; root /srv/www; "+c.text+php+" }")
		rules := out.Routes[len(out.Routes)-1].Rules
		last := rules[len(rules)-1]
		fallback := ""
		if len(last.BackendRefs) > 0 {
			for i := range out.Pools {
				if out.Pools[i].Name == last.BackendRefs[0].Name {
					fallback = out.Pools[i].FastCGI.Fallback
				}
			}
		}
		if last.Static == nil || len(last.BackendRefs) > 0 != c.pool || fallback != c.fallback {
			t.Errorf("%s:\n%s", c.text, r.Config)
		}
	}
}

func TestVariablesOfScripts(t *testing.T) {
	out, r := converted(t, Nginx, `server { listen 80; root /srv/www; location ~ \.php$ {
fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; fastcgi_param APP_ENV prod; fastcgi_param REMOTE_ADDR $http_x_real_ip;
fastcgi_param QUERY_STRING $query_string; fastcgi_param lower x; fastcgi_param CONTENT_LENGTH 3; fastcgi_param HTTP_PROXY ""; fastcgi_param A "$host-$"; fastcgi_param APP_ENV dev;
fastcgi_read_timeout 7s; fastcgi_keep_conn on; fastcgi_pass php:9000; } }`)
	f := scriptsOf(out)[0]
	if want := []config.FastCGIParam{{Name: "A", Value: "${hostname}-$"}, {Name: "APP_ENV", Value: "dev"}}; !slices.Equal(f.Params, want) || !f.Keep || out.Pools[0].Timeouts.Response.Seconds() != 7 {
		t.Errorf("%+v", f)
	}
	for text, want := range map[string]Result{
		"fastcgi_param REMOTE_ADDR": Left, "fastcgi_param lower": Left, "fastcgi_param CONTENT_LENGTH": Left, "fastcgi_param HTTP_PROXY": Translated, "fastcgi_param QUERY_STRING": Translated,
	} {
		if l := resultOf(t, r, text); l.Result != want {
			t.Errorf("%+v, want %s", l, want)
		}
	}
	out, r = converted(t, Caddy, ":80 {\n\troot /srv/www\n\tphp_fastcgi php:9000 {\n\t\tenv APP_ENV prod\n\t\tenv lower x\n\t\tread_timeout 7s\n\t\tlb_policy first\n\t}\n}\n")
	if f := scriptsOf(out)[0]; len(f.Params) != 1 || f.Params[0].Name != "APP_ENV" || out.Pools[0].Timeouts.Response.Seconds() != 7 || resultOf(t, r, "env lower").Result != Left || resultOf(t, r, "lb_policy").Result != Left {
		t.Errorf("%+v\n%s", f, r.Text(true))
	}
}

// A location with one script runs that, whatever its path names.
func TestOneScript(t *testing.T) {
	out, r := converted(t, Nginx, `server { listen 80; root /srv/www; location = /status { include fastcgi_params; fastcgi_param SCRIPT_FILENAME $document_root/b.php; fastcgi_pass php:9000; } }`)
	f := out.Routes[0].Rules[0].Filters
	if len(f) != 1 || f[0].Path == nil || f[0].Path.Value != "/b.php" || scriptsOf(out)[0].Fallback != "" {
		t.Errorf("%+v\n%s", f, r.Config)
	}
}
