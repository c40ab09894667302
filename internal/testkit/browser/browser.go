// Package browser has what browsers send, for tests and benchmarks of field compression. It imports nothing, so that
// tests inside of the package that compresses can use it.
package browser

// Page returns name and value of the fields of a request as Chromium 138 sends them for a page.
func Page(path string) [][2]string {
	return [][2]string{
		{":method", "GET"},
		{":authority", "www.example.com"},
		{":scheme", "https"},
		{":path", path},
		{"cache-control", "max-age=0"},
		{"sec-ch-ua", `"Not)A;Brand";v="8", "Chromium";v="138", "Google Chrome";v="138"`},
		{"sec-ch-ua-mobile", "?0"},
		{"sec-ch-ua-platform", `"Linux"`},
		{"upgrade-insecure-requests", "1"},
		{"user-agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Safari/537.36"},
		{"accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8"},
		{"sec-fetch-site", "none"},
		{"sec-fetch-mode", "navigate"},
		{"sec-fetch-user", "?1"},
		{"sec-fetch-dest", "document"},
		{"accept-encoding", "gzip, deflate, br, zstd"},
		{"accept-language", "en-US,en;q=0.9,de;q=0.8"},
		{"priority", "u=0, i"},
		{"cookie", "session=0123456789abcdef0123456789abcdef"},
		{"if-none-match", `W/"5e15153d-120f"`},
	}
}
