"""Django's models and transactions, over psycopg."""

import threading
import time

import django
from django.conf import settings

from story import *

common = {
    "ENGINE": "django.db.backends.postgresql",
    "HOST": os.environ["PGHOST"],
    "USER": os.environ["PGUSER"],
    "PASSWORD": os.environ["PGPASSWORD"],
}
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"],
    TIME_ZONE="Europe/Berlin",
    USE_TZ=True,
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    DATABASES={
        # Kept open between requests, as one does.
        "default": common | {"NAME": os.environ["PGDATABASE"], "PORT": os.environ["PGPORT"], "CONN_MAX_AGE": None},
        "direct": common | {"NAME": DIRECT["database"], "PORT": DIRECT["port"]},
    },
)
django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import Error, IntegrityError, OperationalError, ProgrammingError, connection, connections, models, transaction  # noqa: E402


class Goods(models.Model):
    name = models.TextField(unique=True)
    price = models.DecimalField(max_digits=10, decimal_places=2)
    made = models.DateTimeField(auto_now_add=True)
    more = models.JSONField(default=dict)

    class Meta:
        app_label = "django_story"
        db_table = "django_story"


def value(sql, *parameters, using=connection):
    with using.cursor() as cursor:
        cursor.execute(sql, parameters or None)
        return cursor.fetchone()[0]


def first_steps():
    expect("who", "app", value("SELECT current_user::text"))
    call_command("migrate", verbosity=0)
    with connection.schema_editor() as editor:
        if Goods._meta.db_table in connection.introspection.table_names():
            editor.delete_model(Goods)
    with connection.schema_editor() as editor:
        editor.create_model(Goods)
    ok("connect, and migrations")

    try:
        value("SELECT * FROM nowhere")
        fail("an unknown table", "ProgrammingError", "none")
    except ProgrammingError as error:
        expect("an unknown table", "42P01", error.__cause__.sqlstate)
    Goods.objects.create(name="once", price="1.50", more={"a": [1, None, "ü"]})
    try:
        Goods.objects.create(name="once", price=2)
        fail("a name twice", "IntegrityError", "none")
    except IntegrityError as error:
        expect("a name twice", "23505", error.__cause__.sqlstate)
    seen = Goods.objects.get(more__a__2="ü")
    expect("what was stored", ("once", "1.50"), (seen.name, str(seen.price)))
    # It asks for UTC on each connection, unless the connection says that it has it already.
    expect("the time zone", "UTC", value("SHOW timezone"))
    if abs(seen.made.timestamp() - time.time()) > 60:
        fail("when it was stored", "now", seen.made)
    ok("an error and on")

    with transaction.atomic():
        Goods.objects.create(name="kept", price=2)
        try:
            with transaction.atomic():  # a savepoint
                Goods.objects.create(name="undone", price=2)
                Goods.objects.create(name="once", price=2)
        except IntegrityError:
            pass
        expect("one row is locked", 1, len(Goods.objects.select_for_update().filter(name="kept")))
    with transaction.atomic():
        Goods.objects.create(name="rolled back", price=2)
        transaction.set_rollback(True)
    expect("what was committed", ["kept", "once"], [goods.name for goods in Goods.objects.order_by("name")])
    ok("commit, rollback, savepoint")


def prepared():
    pids = []

    def client(number):
        mine = connections["default"]  # of this thread
        for i in range(1000):
            name = f"of {number}"
            if i % 100 == 0:
                with transaction.atomic():
                    goods, _ = Goods.objects.update_or_create(name=name, defaults={"price": i})
                    pids.append(value("SELECT pg_backend_pid()", using=mine))
                expect("what was stored", name, goods.name)
            seen = Goods.objects.filter(name=name, price__lte=i).values_list("price", flat=True)
            expect("a statement's answer", [i - i % 100], [int(price) for price in seen])
            pids.append(value("SELECT pg_backend_pid()", using=mine))
        mine.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect("answers", 3030, len(pids))
    several_servers(pids)
    ok("a statement 1,000 times in each of three threads")


def batch():
    Goods.objects.bulk_create([Goods(name=f"batch {n}", price=n) for n in range(2000)], batch_size=500)
    many = list(Goods.objects.filter(name__startswith="batch"))
    for goods in many:
        goods.price += 1
    Goods.objects.bulk_update(many, ["price"], batch_size=500)
    total = Goods.objects.filter(name__startswith="batch").aggregate(models.Sum("price"))["price__sum"]
    expect("the sum of a batch", sum(range(1, 2001)), int(total))
    ok("batches")

    # Outside a transaction it takes a cursor WITH HOLD, which belongs to a session: that keeps its server for as long.
    def iterate():
        goods = Goods.objects.filter(name__startswith="batch").iterator(chunk_size=100)
        return sum(1 for row in goods if value("SELECT 7") == 7 and row)

    expect("rows by an iterator", 2000, iterate())
    with transaction.atomic():
        expect("rows by an iterator in a transaction", 2000, iterate())
    ok("an iterator")


def copy():
    rows = [(f"copied {n}", n) for n in range(20000)]
    with connection.cursor() as cursor:
        with cursor.copy("COPY django_story (name, price, made, more) FROM STDIN") as into:
            for name, price in rows:
                into.write_row((name, price, "2026-01-01", "{}"))
        with cursor.copy("COPY (SELECT name, price::int FROM django_story WHERE name LIKE 'copied%' ORDER BY price) TO STDOUT") as out:
            out.set_types(["text", "int4"])
            expect("what COPY gave back", True, list(out.rows()) == rows)
    ok("COPY in and out, by its driver")


def cancel():
    def strike():
        patience = time.monotonic() + 10
        while value(SLEEPERS, using=connections["direct"]) == 0 and time.monotonic() < patience:
            time.sleep(0.05)
        driver.cancel_safe()
        connections.close_all()

    connection.ensure_connection()
    driver = connection.connection
    thread = threading.Thread(target=strike)
    thread.start()
    try:
        value("SELECT pg_sleep(30)")
        fail("a cancelled statement", "57014", "none")
    except OperationalError as error:
        expect("a cancelled statement", "57014", error.__cause__.sqlstate)
    thread.join()
    expect("the next answer", 3, value("SELECT 3"))
    ok("cancel")


def large(direct_sum):
    with connection.cursor() as cursor:
        cursor.execute(BIG)
        expect("the checksum of 50 MB", direct_sum, checksum(cursor.fetchall()))
    ok("a large result")


def reconnect():
    def again():
        # As Django does between requests.
        connection.close_if_unusable_or_obsolete()
        return value("SELECT 42")

    try:
        with transaction.atomic():
            value("SELECT 1")
            value(KILL, using=connections["direct"])
            value("SELECT 2")
        fail("a query on a dead server", "OperationalError", "none")
    except Error:
        pass
    expect("a new connection's answer", 42, patiently(again, Error))
    ok("reconnect after the servers were killed")


def main():
    first_steps()
    prepared()
    batch()
    copy()
    cancel()
    large(value(BIG_SUM, using=connections["direct"]))
    reconnect()


main()
