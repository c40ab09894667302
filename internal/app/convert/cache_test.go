package convert

import (
	"fmt"
	"strings"
	"testing"
)

// What keeps responses of one client from others is kept, or nothing is stored.
func TestCaches(t *testing.T) {
	nginx := func(inner string) string {
		return "proxy_cache_path /c keys_zone=z:1m max_size=64m inactive=1h; server { listen 80; location / { proxy_cache z; proxy_pass http://127.0.0.1:1; " + inner + " } }"
	}
	haproxy := func(use string) string {
		return "cache c\n total-max-size 8\n max-object-size 100000\n max-age 60\nfrontend f\n mode http\n bind :80\n " + use + "\n http-response cache-store c\n default_backend b\nbackend b\n mode http\n server s 127.0.0.1:1\n"
	}
	for _, c := range []struct {
		language   Language
		text, want string // the cache and the rule's keys, "" for none
		line       string // that is left out then
	}{
		{Nginx, nginx(""), "67108864 0 ttl 0s updating 0s error 0s ignore [] [] 5s", ""},
		{Nginx, nginx("proxy_cache_valid 200 10m; proxy_cache_valid any 1m; proxy_cache_use_stale error updating; proxy_cache_lock on; proxy_cache_lock_timeout 3s;"), "67108864 0 ttl 10m0s updating 1h0m0s error 1h0m0s ignore [] [] 3s", ""},
		{Nginx, nginx("proxy_cache_key $scheme$host$request_uri$cookie_lang$http_x_kind;"), "67108864 0 ttl 0s updating 0s error 0s ignore [x-kind] [lang] 5s", ""},
		{Nginx, nginx("proxy_cache_bypass $http_pragma; proxy_no_cache $cookie_session $arg_nocache 0;"), "67108864 0 ttl 0s updating 0s error 0s honor [] [session] 5s", ""},
		{Nginx, nginx("proxy_no_cache $skip;"), "", "proxy_cache z"},
		{Nginx, nginx("proxy_cache_key $geoip_country$request_uri;"), "", "proxy_cache z"},
		{Nginx, nginx("proxy_no_cache $cookie_a$skip;"), "", "proxy_cache z"},
		{Nginx, strings.Replace(nginx(""), "proxy_cache z", "proxy_cache other", 1), "", "proxy_cache other"},
		{HAProxy, haproxy("http-request cache-use c"), "8388608 100000 ttl 0s updating 0s error 0s honor [] [] 5s", ""},
		{HAProxy, haproxy("http-request cache-use c if { path_beg /x }"), "", "http-request cache-use"},
		{HAProxy, haproxy("http-request cache-use d"), "", "http-request cache-use"},
	} {
		out, r := converted(t, c.language, c.text)
		got := ""
		if k := out.Routes[0].Rules[0].Cache; k != nil {
			size := out.Caches[0].MaxObject
			if size == 1<<20 {
				size = 0
			}
			got = fmt.Sprintf("%d %d ttl %v updating %v error %v %s %v %v %v", out.Caches[0].Memory, size, k.DefaultTTL, k.StaleWhileRevalidate, k.StaleIfError, k.ClientControl, k.KeyHeaders, k.KeyCookies, k.CollapseWait)
		}
		if got != c.want || c.line != "" && resultOf(t, r, c.line).Result != Left || c.line == "" && r.Left > 0 {
			t.Errorf("%s: %q\n%s", c.text, got, r.Text(true))
		}
	}
}

// The files of nginx become a second level on disk: of the same size, with as many keys as the zone has room for.
func TestCachesOnDisk(t *testing.T) {
	for path, want := range map[string]string{
		"/c keys_zone=z:1m max_size=64m":             "memory 67108864, /var/cache/millrace/z 67108864 bytes 8192 objects 16777216",
		"/c keys_zone=z:10m max_size=10g levels=1:2": "memory 268435456, /var/cache/millrace/z 10737418240 bytes 81920 objects 67108864",
		"/c keys_zone=z:64k max_size=1m":             "memory 1048576, /var/cache/millrace/z 16777216 bytes 512 objects 4194304",
		"/c keys_zone=z:1m":                          "memory 268435456, /var/cache/millrace/z 1073741824 bytes 8192 objects 67108864",
		"/dev/shm/c keys_zone=z:1m max_size=64m":     "memory 67108864",
		"/c keys_zone=z:1m max_size=900000g":         "memory 268435456, /var/cache/millrace/z 70368744177664 bytes 8192 objects 67108864",
		"/c keys_zone=z max_size=64m":                "memory 67108864, /var/cache/millrace/z 67108864 bytes 262144 objects 16777216",
	} {
		out, r := converted(t, Nginx, "proxy_cache_path "+path+"; server { listen 80; location / { proxy_cache z; proxy_pass http://127.0.0.1:1; } }")
		if len(out.Caches) != 1 || r.Left > 0 {
			t.Errorf("%s: %d caches\n%s", path, len(out.Caches), r.Text(true))
			continue
		}
		k := out.Caches[0]
		got := fmt.Sprintf("memory %d", k.Memory)
		if d := k.Disk; d != nil {
			got += fmt.Sprintf(", %s %d bytes %d objects %d", d.Dir, d.Bytes, d.Objects, d.MaxObject)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
