// Package files answers requests with the files of a folder: ranges, conditions, files that were compressed beforehand, listings.
//
//	site, err := files.Open(files.Options{Root: "/srv/www"})
//	answer, err := site.Answer(&request, files.Now)
//	n, err := answer.Read(p, files.Now)
//
// Nothing waits for a disk that is asked Now: what is not in the kernel's caches is ErrWait, and is asked again Later, by a goroutine
// that may wait. A path never leads out of the folder: the kernel resolves it below the folder's descriptor (openat2(2),
// RESOLVE_BENEATH), so that neither encoding, nor symbolic links, nor a rename meanwhile get past it.
//
// Requests come in as values and answers go out as fields and bytes: the package knows nothing of connections.
//
// RFC 9110 8.8 (validators), 13 (conditions), 14 (ranges), 12.5.3 (Accept-Encoding).
package files
