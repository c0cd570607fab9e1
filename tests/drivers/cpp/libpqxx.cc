// libpqxx, libpq for C++. What it takes from libpq it takes from the environment.
#include <openssl/evp.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>
#include <pqxx/pqxx>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace {

const bool pooled = std::string(std::getenv("THROUGH")) == "howdah";
const std::string wrong = "SELECT * FROM nowhere";
const std::string kill_all = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop'";
const std::string sleepers =
    "SELECT count(*) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop' AND state = 'active' AND query LIKE 'SELECT pg_sleep(30)%'";
const std::string big = "SELECT i, repeat(md5(i::text), 33) AS text FROM generate_series(1, 50000) i ORDER BY i";
// What PostgreSQL says the checksum of big is.
const std::string big_sum = "SELECT md5(string_agg(i || text, '' ORDER BY i)) FROM (" + big + ") big";

void ok(const std::string &what) { std::cout << "ok libpqxx: " << what << std::endl; }

[[noreturn]] void fail(const std::string &what, const std::string &wanted, const std::string &seen) {
    std::cerr << "FAILED libpqxx: " << what << "\n  expected: " << wanted << "\n  seen:     " << seen << std::endl;
    std::_Exit(1);
}

template <typename T> void expect(const std::string &what, const T &wanted, const T &seen) {
    if (wanted != seen) fail(what, pqxx::to_string(wanted), pqxx::to_string(seen));
}

template <typename Attempt> void must_fail(const std::string &what, const std::string &sqlstate, Attempt attempt) {
    try {
        attempt();
    } catch (const pqxx::sql_error &error) {
        expect(what, sqlstate, error.sqlstate());
        return;
    }
    fail(what, sqlstate, "no error");
}

using Clock = std::chrono::steady_clock;
bool within(Clock::time_point began, int seconds) { return Clock::now() - began < std::chrono::seconds(seconds); }
void pause(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

void first_steps(pqxx::connection &connection) {
    {
        pqxx::nontransaction work{connection};
        auto row = work.exec1("SELECT current_user, current_database()");
        expect<std::string>("who", "app", row[0].c_str());
        expect<std::string>("where", "shop", row[1].c_str());
        ok("connect");

        must_fail("an unknown table", "42P01", [&] { work.exec(wrong); });
        must_fail("a division by zero", "22012", [&] { work.exec_params("SELECT 1 / $1::int", 0); });
        expect("the next answer", 2, work.exec_params1("SELECT 1 + $1::int", 1)[0].as<int>());
        ok("an error and on");

        work.exec("SET client_min_messages = error; DROP TABLE IF EXISTS libpqxx_story");
        work.exec("CREATE TABLE libpqxx_story (n int, text text)");
    }
    const std::string insert = "INSERT INTO libpqxx_story VALUES ($1, 'x')";
    {
        pqxx::work work{connection};
        work.exec_params(insert, 1);
        work.commit();
    }
    {
        pqxx::work work{connection};
        work.exec_params(insert, 2);
        must_fail("an unknown table", "42P01", [&] { work.exec(wrong); });
        work.abort();
    }
    {
        pqxx::work work{connection};
        work.exec_params(insert, 3);
        {
            pqxx::subtransaction inner{work, "here"};
            inner.exec("INSERT INTO libpqxx_story VALUES (4, 'x')");
            must_fail("an unknown table", "42P01", [&] { inner.exec(wrong); });
            inner.abort();
        }
        work.commit();
    }
    pqxx::nontransaction work{connection};
    expect<std::string>("what was committed", "{1,3}", work.exec1("SELECT array_agg(n ORDER BY n) FROM libpqxx_story")[0].c_str());
    ok("commit, rollback, savepoint");
}

void prepared() {
    std::set<int> pids;
    std::mutex lock;
    std::vector<std::thread> clients;
    for (int number = 0; number < 3; number++) {
        clients.emplace_back([&, base = number * 1'000'000] {
            try {
                pqxx::connection connection;
                // The same name on each, for different statements.
                connection.prepare("same", "SELECT " + std::to_string(base) + " + $1::int, pg_backend_pid()");
                for (int i = 0; i < 1000; i++) {
                    pqxx::row row;
                    if (i % 20 == 0) {
                        pqxx::work work{connection};
                        row = work.exec_prepared1("same", i);
                        work.exec("SELECT pg_sleep(0.002)");
                        work.commit();
                    } else {
                        pqxx::nontransaction work{connection};
                        row = work.exec_prepared1("same", i);
                    }
                    expect("a prepared statement's answer", base + i, row[0].as<int>());
                    std::lock_guard guard{lock};
                    pids.insert(row[1].as<int>());
                }
            } catch (const std::exception &error) {
                fail("a prepared statement", "success", error.what());
            }
        });
    }
    for (auto &client : clients) client.join();
    if (pooled && pids.size() < 2) fail("servers that served three clients", "two or three", std::to_string(pids.size()));
    ok("a prepared statement 1,000 times on three connections");
}

void pipelined(pqxx::connection &connection) {
    pqxx::work work{connection};
    pqxx::pipeline pipe{work};
    pipe.retain(50);
    std::vector<pqxx::pipeline::query_id> sent;
    for (int i = 0; i < 500; i++) sent.push_back(pipe.insert("SELECT " + std::to_string(i) + " * 2"));
    pipe.complete();
    for (int i = 0; i < 500; i++) expect("an answer of a pipeline", i * 2, pipe.retrieve(sent[i])[0][0].as<int>());
    ok("its pipeline, of statements in one message");
}

void copy(pqxx::connection &connection) {
    pqxx::work work{connection};
    work.exec("TRUNCATE libpqxx_story");
    pqxx::stream_to into{work, "libpqxx_story", std::vector<std::string>{"n", "text"}};
    for (int i = 0; i < 20000; i++) into << std::make_tuple(i, "row " + std::to_string(i));
    into.complete();
    pqxx::stream_from out{work, "libpqxx_story", std::vector<std::string>{"n", "text"}};
    std::tuple<int, std::string> row;
    int count = 0;
    while (out >> row) {
        expect("a row that COPY gave back", "row " + std::to_string(std::get<0>(row)), std::get<1>(row));
        count++;
    }
    out.complete();
    expect("rows of COPY", 20000, count);
    work.commit();
    ok("COPY in and out");
}

void cancel(pqxx::connection &connection, pqxx::connection &direct) {
    const auto began = Clock::now();
    std::thread striker{[&] {
        try {
            pqxx::nontransaction work{direct};
            while (work.exec1(sleepers)[0].as<int>() == 0 && within(began, 10)) pause(50);
            connection.cancel_query();
        } catch (const std::exception &error) {
            fail("the cancel", "success", error.what());
        }
    }};
    pqxx::nontransaction work{connection};
    must_fail("a cancelled statement", "57014", [&] { work.exec("SELECT pg_sleep(30)"); });
    striker.join();
    if (!within(began, 15)) fail("seconds until the cancel", "few", "many");
    expect("the next answer", 3, work.exec_params1("SELECT $1::int", 3)[0].as<int>());
    ok("cancel");
}

class Checksum {
    std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> sum_{EVP_MD_CTX_new(), EVP_MD_CTX_free};

  public:
    Checksum() { EVP_DigestInit_ex(sum_.get(), EVP_md5(), nullptr); }
    void add(const char *text) { EVP_DigestUpdate(sum_.get(), text, std::char_traits<char>::length(text)); }
    std::string hex() {
        unsigned char bytes[EVP_MAX_MD_SIZE];
        unsigned int length = 0;
        EVP_DigestFinal_ex(sum_.get(), bytes, &length);
        std::string text;
        for (unsigned int i = 0; i < length; i++) {
            text += "0123456789abcdef"[bytes[i] >> 4];
            text += "0123456789abcdef"[bytes[i] & 15];
        }
        return text;
    }
};

void large(pqxx::connection &connection, const std::string &wanted) {
    Checksum at_once, by_cursor;
    pqxx::work work{connection};
    for (auto row : work.exec(big)) {
        at_once.add(row[0].c_str());
        at_once.add(row[1].c_str());
    }
    expect("the checksum of 50 MB", wanted, at_once.hex());
    pqxx::icursorstream cursor{work, big, "slow", 1000};
    for (pqxx::result rows; cursor.get(rows), !rows.empty();) {
        for (auto row : rows) {
            by_cursor.add(row[0].c_str());
            by_cursor.add(row[1].c_str());
        }
    }
    expect("the checksum by a cursor", wanted, by_cursor.hex());
    ok("a large result");
}

void reconnect(pqxx::connection &idle, pqxx::connection &direct) {
    try {
        pqxx::connection connection;
        pqxx::work work{connection};
        work.exec("SELECT 1");
        pqxx::nontransaction{direct}.exec(kill_all);
        work.exec("SELECT 2");
        fail("a query on a dead server", "an error", "none");
    } catch (const pqxx::failure &) {
    }
    // A pooler may learn of a server's death only by using it.
    for (const auto began = Clock::now();; pause(100)) {
        try {
            pqxx::connection fresh;
            expect("a new connection's answer", 42, pqxx::nontransaction{fresh}.exec1("SELECT 42")[0].as<int>());
            break;
        } catch (const pqxx::failure &error) {
            if (!within(began, 5)) fail("reconnect", "success within some seconds", error.what());
        }
    }
    if (pooled) {
        pqxx::nontransaction work{idle};
        expect("the answer on a client that was idle", 43, work.exec_params1("SELECT $1::int", 43)[0].as<int>());
    }
    ok("reconnect after the servers were killed");
}

}  // namespace

int main() {
    try {
        pqxx::connection direct{"dbname=postgres port=" + std::string(std::getenv("DIRECT_PORT"))};
        pqxx::connection connection;
        first_steps(connection);
        prepared();
        pipelined(connection);
        copy(connection);
        cancel(connection, direct);
        large(connection, pqxx::nontransaction{direct}.exec1(big_sum)[0].c_str());
        reconnect(connection, direct);
    } catch (const std::exception &error) {
        fail("the story", "no surprise", error.what());
    }
}
