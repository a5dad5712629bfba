// Gives names of a test the addresses that TEST_NAMES lists: `a.test=127.0.0.2,::1;b.test=127.0.0.3`.
// Loaded into the gateway in front of the C library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

typedef int (*lookup)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **found) {
    lookup real = (lookup)dlsym(RTLD_NEXT, "getaddrinfo");
    size_t length = name ? strlen(name) : 0;
    const char *entry = getenv("TEST_NAMES");
    while (name && entry && *entry) {
        size_t whole = strcspn(entry, ";");
        if (whole > length && strncmp(entry, name, length) == 0 && entry[length] == '=') {
            char addresses[1024] = {0};
            size_t listed = whole - length - 1;
            if (listed >= sizeof addresses) return EAI_MEMORY;
            memcpy(addresses, entry + length + 1, listed);
            struct addrinfo *first = NULL, **end = &first;
            char *rest = NULL;
            for (char *one = strtok_r(addresses, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
                if (real(one, service, hints, end)) continue;
                while (*end) end = &(*end)->ai_next;
            }
            *found = first;
            return first ? 0 : EAI_NONAME;
        }
        entry += whole + (entry[whole] == ';');
    }
    return real(name, service, hints, found);
}
